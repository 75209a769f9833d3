package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/overlapd/overlapd/overlap"
)

// What to do about a log that cannot be read.
const (
	notALog = "give a file that a daemon with decisions.log = true has written, such as " + FileName + " or " + FileName + ".1 of its state folder"
	damaged = "the file was changed or is damaged: replay another file of the log, of which each stands for itself"
	another = "replay it with the overlapd that wrote it, which its first line names"
)

// reader reads a log, line by line.
type reader struct {
	name  string
	lines *bufio.Scanner
	line  int  // the number of the line that was read last, from 1
	torn  bool // the last line has no end, and was left out
}

func newReader(name string, in io.Reader) *reader {
	r := &reader{name: name, lines: bufio.NewScanner(in)}
	r.lines.Buffer(make([]byte, 0, 64<<10), maxLineBytes)
	r.lines.Split(func(data []byte, last bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			return i + 1, data[:i], nil
		}
		r.torn = last && len(data) > 0 // by a crash
		return 0, nil, nil
	})
	return r
}

// next returns the next line, or io.EOF.
func (r *reader) next() ([]byte, error) {
	r.line++
	if r.lines.Scan() {
		return r.lines.Bytes(), nil
	}
	switch err := r.lines.Err(); {
	case err == nil:
		return nil, io.EOF
	case errors.Is(err, bufio.ErrTooLong):
		return nil, r.fault(fmt.Errorf("a line of more than %d bytes", maxLineBytes), notALog)
	default:
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
}

// header reads the first line.
func (r *reader) header() (h Header, err error) {
	text, err := r.next()
	if err == io.EOF {
		return h, r.fault(errors.New("it has no whole line"), notALog)
	} else if err != nil {
		return h, err
	}
	var first struct {
		Format string `json:"format"`
	}
	_ = json.Unmarshal(text, &first) // else it has no format
	kind, _, _ := strings.Cut(Format, "/")
	switch known, version, _ := strings.Cut(first.Format, "/"); {
	case known != kind:
		return h, r.fault(fmt.Errorf("not a decision log: the first line has the format %.80q, not %q", first.Format, Format), notALog)
	case first.Format != Format:
		return h, r.fault(fmt.Errorf("unknown version of the decision log: %.80q", version), another)
	}
	if err = strict(text, &h); err == nil && h.State == nil {
		err = errors.New("it has no state")
	}
	if err != nil {
		return h, r.fault(fmt.Errorf("bad header: %w", err), damaged)
	}
	return h, nil
}

// record returns the next record and its text, which is valid until the next call, or io.EOF.
func (r *reader) record() (*Record, []byte, error) {
	text, err := r.next()
	if err != nil {
		return nil, nil, err
	}
	c := &Record{Event: new(overlap.Event), Explanation: new(overlap.Explanation), Line: r.line}
	if err = strict(text, c); err == nil {
		err = c.complete()
	}
	if err != nil {
		return nil, nil, r.fault(fmt.Errorf("bad record: %w", err), damaged)
	}
	return c, text, nil
}

// fault adds the place of an error, and what to do.
func (r *reader) fault(err error, remedy string) error {
	return fmt.Errorf("%s:%d: %w; %s", r.name, r.line, err, remedy)
}

// strict decodes one JSON value that has no unknown fields and nothing behind it.
func strict(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one value")
	}
	return nil
}
