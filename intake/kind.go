package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Kind is a kind of JSON files, each one object.
type Kind struct {
	Format   string // what the field format of each holds, "" if they have none
	MaxBytes int    // of a file

	// Foreign is wrapped by the errors of files that are of another kind,
	// Damaged by those of files that are of this one and cannot be used.
	Foreign, Damaged error
}

// Read reads a file to the end of r into what a pointer points to. The name, ""
// if it has none, stands in errors, which wrap Foreign or Damaged, or are those
// of the reader.
func (k *Kind) Read(r io.Reader, name string, into any) error {
	data, err := io.ReadAll(io.LimitReader(r, int64(k.MaxBytes)+1))
	if err != nil {
		return &Fault{File: name, Err: err}
	}
	if len(data) > k.MaxBytes {
		return &Fault{File: name, Err: fmt.Errorf("%w: larger than %d bytes", k.Damaged, k.MaxBytes)}
	}
	data = bytes.TrimPrefix(data, []byte(mark))
	at, err := k.decode(data, into)
	if err == nil {
		return nil
	}
	line := 0
	if at >= 0 {
		line = 1 + bytes.Count(data[:min(at, len(data))], []byte("\n"))
	}
	return &Fault{File: name, Line: line, Err: err}
}

// decode returns an error with the byte at which it is, -1 if nowhere.
func (k *Kind) decode(data []byte, into any) (at int, err error) {
	if at, err := k.checkFormat(data); err != nil {
		return at, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		at, err := explain(data, err)
		return at, fmt.Errorf("%w: %w", k.Damaged, err)
	}
	if at := findNull(data); at >= 0 {
		return at, fmt.Errorf("%w: byte %d: null in place of a value", k.Damaged, at+1)
	}
	return 0, nil
}

// checkFormat looks at nothing but syntax and format, so that a file of another
// kind or version is not blamed for its fields.
func (k *Kind) checkFormat(data []byte) (at int, err error) {
	text := bytes.TrimLeft(data, " \t\r\n")
	if len(text) == 0 {
		return -1, fmt.Errorf("%w: it is empty", k.Foreign)
	}
	if text[0] != '{' {
		if err := checkText(data[:min(len(data), sniffedBytes)], len(data) <= sniffedBytes); err != nil {
			return -1, fmt.Errorf("%w: not a JSON object: %w", k.Foreign, err)
		}
		return -1, fmt.Errorf("%w: not a JSON object", k.Foreign)
	}
	var head struct {
		Format any `json:"format"`
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(data, &head); errors.As(err, &syntax) {
		at, err := explain(data, err)
		return at, fmt.Errorf("%w: %w", k.Damaged, err)
	}
	if format, _ := head.Format.(string); k.Format != "" && format != k.Format {
		return -1, fmt.Errorf("%w: its format is %.40q, want %q", k.Foreign, format, k.Format)
	}
	return 0, nil
}

// explain says in words what decoding found, and at which byte.
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
		// The decoder does not say where. The first of that name may be a value.
		return max(bytes.Index(data, []byte(field+":")), bytes.Index(data, []byte(field)), 0), fmt.Errorf("unknown field %.60s; remove it or correct its name", field)
	}
	return -1, err
}

func fieldName(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}

// words says what a field takes.
func words(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint64:
		return "a whole number from 0 to 18446744073709551615"
	case reflect.Float32, reflect.Float64:
		return "a number that " + t.String() + " holds"
	case reflect.String:
		return "text"
	case reflect.Slice, reflect.Array:
		return "a list"
	}
	return "an object"
}

// findNull returns where valid JSON holds a null, or -1. The decoder takes one
// for a zero, but it is how many a tool writes NaN. Outside of strings no other
// word has an n.
func findNull(data []byte) int {
	inside := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			inside = !inside
		case c == '\\' && inside:
			i++
		case c == 'n' && !inside:
			return i
		}
	}
	return -1
}
