package textfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// Kind describes a kind of JSON file. Each file holds one object, a T, in at most MaxBytes
// bytes.
type Kind[T any] struct {
	// Format is the value of the field "format" in every file of this kind. It is empty for
	// kinds without that field.
	Format   string
	MaxBytes int

	// Foreign is wrapped by the errors of files of another kind, and Damaged by those of files
	// of this kind that cannot be used.
	Foreign, Damaged error

	// Faults returns what is wrong with a value that decoded without error. Remedy tells the
	// user how to get a valid file. Both are optional.
	Faults func(*T) []error
	Remedy string
}

// MaxFaults is the number of faults that one error lists. A Faults function whose result could
// be arbitrarily long should stop after this many.
const MaxFaults = 20

// Limits on the content of a file, in addition to its size: a "{}" of two bytes may decode to a
// value of hundreds of bytes.
const (
	// maxValues limits all values in a file, and maxNested the objects and lists among them.
	maxValues = 4 << 20
	maxNested = 1 << 19
)

var errTooMany = fmt.Errorf("it has more than %d values, or more than %d objects and lists", maxValues, maxNested)

// Check returns an error that lists the faults of value, or nil if it has none.
func (k *Kind[T]) Check(value *T) error {
	if k.Faults == nil {
		return nil
	}
	faults := k.Faults(value)
	if len(faults) == 0 {
		return nil
	}
	if more := len(faults) - MaxFaults; more > 0 {
		faults = append(faults[:MaxFaults], fmt.Errorf("and %d more", more))
	}
	return fmt.Errorf("%w: %w", k.Damaged, errors.Join(faults...))
}

// Read decodes and checks a file, reading r to its end. name is used in errors and may be empty.
// Errors wrap Foreign or Damaged, except for errors of r itself.
func (k *Kind[T]) Read(r io.Reader, name string) (*T, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(k.MaxBytes)+1))
	// One byte more than the limit tells a file at the limit from a larger one.
	if err != nil {
		return nil, &Fault{File: name, Err: err}
	}
	if len(data) > k.MaxBytes {
		return nil, &Fault{File: name, Err: fmt.Errorf("%w: larger than %d bytes", k.Damaged, k.MaxBytes)}
	}
	return k.parse(data, name)
}

// parse decodes and checks the content of a file.
func (k *Kind[T]) parse(data []byte, name string) (*T, error) {
	data = bytes.TrimPrefix(data, []byte(mark))
	value := new(T)
	at, err := k.decode(data, value)
	if err == nil {
		err = k.Check(value)
	}
	if err == nil {
		return value, nil
	}
	fault := &Fault{File: name, Err: err}
	if at > 0 {
		fault.Line = 1 + bytes.Count(data[:min(at, len(data))], []byte("\n"))
	}
	return nil, fault
}

// fileMode makes new files readable by every user of the host.
const fileMode = 0o644

// Create writes a file in place, truncating an existing one. For files that others read, use
// Replace.
func Create(path string, fill func(io.Writer) error) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(file), file.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// ReadFile reads the file at path like [Kind.Read]. Its errors name the path.
func (k *Kind[T]) ReadFile(path string) (*T, error) {
	data, err := ReadRegular(path, int64(k.MaxBytes))
	if err == nil {
		var value *T
		if value, err = k.parse(data, path); err == nil {
			return value, nil
		}
	}
	if errors.Is(err, errTooLarge) {
		err = fmt.Errorf("%w: %w", k.Damaged, err)
	}
	if k.Remedy != "" {
		err = fmt.Errorf("%w; %s", err, k.Remedy)
	}
	return nil, err
}

// WriteFile checks value and writes it as a file of this kind with [Replace].
func (k *Kind[T]) WriteFile(path string, value *T) error {
	if err := k.Check(value); err != nil {
		return err
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	// A file of MaxBytes could not be read back: a line end follows the data.
	if len(data) >= k.MaxBytes {
		return fmt.Errorf("%w: larger than %d bytes", k.Damaged, k.MaxBytes)
	}
	return Replace(path, func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
}

// Replace writes a temporary file, syncs it to disk and renames it to path. Readers of path see
// either the old file or the complete new one, even after a crash. On an error it removes the
// temporary file.
func Replace(path string, write func(io.Writer) error) error {
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = write(temp)
	if err = errors.Join(err, temp.Chmod(fileMode), temp.Sync(), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes the renames in a folder durable.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// decode decodes data into a value. The offset of an error in data is at, or 0 if it has none.
func (k *Kind[T]) decode(data []byte, into any) (at int, err error) {
	text := bytes.TrimLeft(data, " \t\r\n")
	switch {
	case len(text) == 0:
		return 0, fmt.Errorf("%w: it is empty", k.Foreign)
	case text[0] != '{':
		if err := checkText(data[:min(len(data), sniffedBytes)], len(data) <= sniffedBytes); err != nil {
			return 0, fmt.Errorf("%w: not a JSON object: %w", k.Foreign, err)
		}
		return 0, fmt.Errorf("%w: not a JSON object", k.Foreign)
	}
	null, err := survey(data)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", k.Damaged, err)
	}
	// Check the syntax and the format first. Otherwise a file of another kind or version would
	// be rejected for an unknown field.
	var head struct {
		Format any `json:"format"`
	}
	var syntax *json.SyntaxError
	if err = json.Unmarshal(data, &head); !errors.As(err, &syntax) {
		if format, _ := head.Format.(string); k.Format != "" && format != k.Format {
			return 0, fmt.Errorf("%w: its format is %.40q, want %q", k.Foreign, format, k.Format)
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(into)
	}
	if err != nil {
		at, err = explain(data, err)
	} else if at = null; at > 0 {
		err = fmt.Errorf("byte %d: null in place of a value", at+1)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", k.Damaged, err)
	}
	return at, err
}

// explain rewrites an error of encoding/json for users and returns its offset in data.
func explain(data []byte, err error) (at int, _ error) {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax) && syntax.Offset >= int64(len(data)):
		return len(data), fmt.Errorf("truncated after %d bytes; copy the whole file", len(data))
	case errors.As(err, &syntax):
		return int(syntax.Offset), fmt.Errorf("byte %d: %w", syntax.Offset, err)
	case errors.As(err, &kind):
		return int(kind.Offset), fmt.Errorf("byte %d: %s is %.60s and must be %s", kind.Offset, fieldName(kind.Field), kind.Value, words(kind.Type))
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		// The error has no offset. Prefer the name followed by a colon, because the name alone
		// may first occur as a value.
		return max(bytes.Index(data, []byte(field+":")), bytes.Index(data, []byte(field))), fmt.Errorf("unknown field %.60s; remove it or correct its name", field)
	}
	return 0, err
}

// fieldName removes embedded structs from a field path. encoding/json includes them under the
// names of their types, which do not occur in the file.
func fieldName(path string) string {
	fields := slices.DeleteFunc(strings.Split(path, "."), func(f string) bool { return f != strings.ToLower(f) })
	return cmp.Or(strings.Join(fields, "."), "the file")
}

// words describes the values that a field of type t accepts.
func words(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Float32, reflect.Float64:
		return "a number that " + t.String() + " holds"
	case reflect.Slice, reflect.Array:
		return "a list"
	}
	return cmp.Or(map[reflect.Kind]string{
		reflect.Bool: "true or false", reflect.Int: "a whole number", reflect.Int64: "a whole number",
		reflect.Uint64: "a whole number from 0 to 18446744073709551615", reflect.String: "text",
	}[t.Kind()], "an object")
}

// Unmarshal is json.Unmarshal for text from an untrusted source. It applies the limits of a
// [Kind].
func Unmarshal(data []byte, into any) error {
	if _, err := survey(data); err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// survey scans valid JSON before it is decoded. It returns the offset of the first null, or -1,
// and an error if there are more values than the limits allow. Nulls are rejected because
// encoding/json decodes them as zero, while many tools write NaN as null. The first n outside a
// string begins a null, because no other JSON literal has an n.
func survey(data []byte) (null int, err error) {
	null = -1
	inside, values, nested := false, 0, 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			inside = !inside
		case c == '\\' && inside:
			i++
		case inside:
		case c == ',':
			values++
		case c == '{' || c == '[':
			values++
			nested++
		case c == 'n' && null < 0:
			null = i
		}
	}
	if values > maxValues || nested > maxNested {
		return null, errTooMany
	}
	return null, nil
}
