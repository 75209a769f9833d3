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

// Kind is a kind of JSON files, each of which holds one object of at most
// MaxBytes bytes, a T.
type Kind[T any] struct {
	// Format is the value of the field "format" in every file of this kind,
	// empty where they have no such field.
	Format   string
	MaxBytes int

	// Foreign is wrapped by the errors of files that are of another kind,
	// Damaged by those of files that are of this one and cannot be used.
	Foreign, Damaged error

	// Faults returns what is wrong with a value that has the form, and Remedy is how
	// to come by a file without. Both may be left out.
	Faults func(*T) []error
	Remedy string
}

// MaxFaults is how many faults one error lists. Where a file may have any number of
// them, Faults stops behind as many.
const MaxFaults = 20

// Limits of what a file holds, whatever its bytes: a "{}" of two bytes becomes a value of
// hundreds.
const (
	maxValues = 4 << 20 // in all
	maxNested = 1 << 19 // of these objects and lists
)

var errTooMany = fmt.Errorf("it has more than %d values, or more than %d objects and lists", maxValues, maxNested)

// Check returns an error that lists the faults of a value, if it has any.
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

// Read decodes a file, which ends where r ends, and checks it. The name is for
// errors and may be empty. Errors wrap Foreign or Damaged, or are those of r.
func (k *Kind[T]) Read(r io.Reader, name string) (*T, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(k.MaxBytes)+1))
	if err != nil {
		return nil, &Fault{File: name, Err: err}
	}
	if len(data) > k.MaxBytes {
		return nil, &Fault{File: name, Err: fmt.Errorf("%w: larger than %d bytes", k.Damaged, k.MaxBytes)}
	}
	return k.parse(data, name)
}

// parse decodes and checks what a file holds.
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

// fileMode lets every user of the host read a new file.
const fileMode = 0o644

// Create creates a file, or writes over one that is there.
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

// ReadFile is [Kind.Read] of the file at a path. Errors name the path.
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

// WriteFile checks a value and writes it as a file of this kind, by Replace.
func (k *Kind[T]) WriteFile(path string, value *T) error {
	if err := k.Check(value); err != nil {
		return err
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if len(data) >= k.MaxBytes {
		return fmt.Errorf("%w: larger than %d bytes", k.Damaged, k.MaxBytes)
	}
	return Replace(path, func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
}

// Replace writes a file and moves it to path when all of it is on disk. A reader of
// the path finds the old file or the whole new one, also after a crash.
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

// syncFolder makes the renames in a folder survive a crash.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// decode returns an error with its offset in data, 0 if it has no place.
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
	// Syntax and format come first, so that a file of another kind or version is not
	// blamed for its fields.
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

// explain rewords an error of package json, and returns its offset in data.
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
		// The error has no offset. The first occurrence of the name may be a value.
		return max(bytes.Index(data, []byte(field+":")), bytes.Index(data, []byte(field))), fmt.Errorf("unknown field %.60s; remove it or correct its name", field)
	}
	return 0, err
}

// fieldName omits embedded structs from a path, which package json names by their types.
func fieldName(path string) string {
	fields := slices.DeleteFunc(strings.Split(path, "."), func(f string) bool { return f != strings.ToLower(f) })
	return cmp.Or(strings.Join(fields, "."), "the file")
}

// words describes the values that a field of a type takes.
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

// Unmarshal is json.Unmarshal of text that others wrote, within the limits of a [Kind].
func Unmarshal(data []byte, into any) error {
	if _, err := survey(data); err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// survey returns the offset of the first null in valid JSON, or -1, and an error if it
// holds more than is decoded. Package json reads a null as zero, but many a tool writes
// NaN as null. Outside of strings no other word has an n.
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
