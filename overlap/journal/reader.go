package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// reader reads a log, line by line.
type reader struct {
	name    string
	in      *bufio.Reader
	head    head
	line    int // that was read last
	text    []byte
	torn    bool // the last line has no end, and was left out
	resumes bool // the next record must be a checkpoint

	services int // that there were so far; IDs are below that
}

// quotedBytes bounds what a message repeats of a log.
const quotedBytes = 80

// newReader reads the first line. Messages call the log by the name.
func newReader(name string, in io.Reader) (*reader, error) {
	r := &reader{name: name, in: bufio.NewReaderSize(in, 64<<10), resumes: true}
	text, err := r.next()
	if err == io.EOF {
		r.line = 1
		return nil, r.fault(ErrFormat, "it is empty")
	} else if err != nil {
		return nil, err
	}
	var format struct {
		Format string `json:"format"`
	}
	if err := json.Unmarshal(text, &format); err != nil {
		return nil, r.fault(ErrFormat, err.Error())
	}
	kind, _, _ := strings.Cut(Format, "/")
	if known, version, _ := strings.Cut(format.Format, "/"); known != kind {
		return nil, r.fault(ErrFormat, fmt.Sprintf("the first line has the format %s, not %q", quote(format.Format), Format))
	} else if format.Format != Format && format.Format != earlierFormat {
		return nil, r.fault(ErrVersion, quote(version))
	}
	if err := strict(text, &r.head); err != nil {
		return nil, r.fault(ErrFormat, err.Error())
	}
	r.services = len(r.head.Config.Services)
	return r, nil
}

// read returns the next record, or io.EOF.
func (r *reader) read() (*record, error) {
	text, err := r.next()
	if err != nil {
		if err == io.EOF && r.resumes {
			return nil, r.fault(ErrCheckpoint, "the log ends where one is due")
		}
		return nil, err
	}
	rec := &record{line: r.line, text: text}
	if err := strict(text, rec); err != nil {
		return nil, r.fault(ErrRecord, err.Error())
	}
	if err := rec.validate(r.services); err != nil {
		return nil, r.fault(ErrRecord, err.Error())
	}
	if r.resumes && rec.Event != eventCheckpoint && rec.Event != eventGap {
		return nil, r.fault(ErrCheckpoint, fmt.Sprintf("%q stands where one is due", rec.Event))
	}
	r.resumes = rec.Event == eventGap
	r.services = rec.services(r.services)
	return rec, nil
}

// next returns the next line without its end. A last line without one was
// torn by a crash: it is left out.
func (r *reader) next() ([]byte, error) {
	r.text = r.text[:0]
	r.line++
	for {
		part, err := r.in.ReadSlice('\n')
		if len(r.text)+len(part) > MaxLineBytes {
			return nil, r.fault(ErrLimit, fmt.Sprintf("at most %d bytes are read", MaxLineBytes))
		}
		r.text = append(r.text, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(r.text, []byte("\n")), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF:
			r.torn = len(r.text) > 0
			return nil, io.EOF
		default:
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
	}
}

func (r *reader) fault(err error, reason string) error {
	return &FormatError{Name: r.name, Line: r.line, Reason: reason, Err: err}
}

// quote returns text of a log as it may stand in a message.
func quote(text string) string {
	if len(text) > quotedBytes {
		text = text[:quotedBytes] + "…"
	}
	return fmt.Sprintf("%q", text)
}
