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

// Errors of reading. Their text names the file, the line and what to do.
var (
	// ErrFormat is returned when the file is no decision log.
	ErrFormat = errors.New("not a decision log")

	// ErrVersion is returned when the file is a decision log of a version that
	// is not read.
	ErrVersion = errors.New("unknown version of the decision log")

	// ErrRecord is returned when a line is not a record, or a number in it is
	// out of range.
	ErrRecord = errors.New("bad record")

	// ErrCheckpoint is returned when there is no checkpoint where the log
	// begins or goes on after a gap, or one that cannot be.
	ErrCheckpoint = errors.New("no good checkpoint")

	// ErrLimit is returned when a line is longer than maxLineBytes.
	ErrLimit = errors.New("line is too long")
)

// ErrPolicy is returned when a log is to be replayed with another policy than
// it was recorded with.
var ErrPolicy = errors.New("another policy makes other decisions, and what would have followed from them is not in the log; " +
	"replay it with its own, or try the other one with overlapd simulate")

// remedies are what to do about the errors of reading.
var remedies = map[error]string{
	ErrFormat:     "give a file that a daemon with decisions.log = true has written, such as " + FileName + " or " + FileName + ".1 of its state folder",
	ErrVersion:    "replay it with the overlapd that wrote it, which its first line names",
	ErrRecord:     "the file was changed or is damaged: replay another file of the log, of which each stands for itself",
	ErrCheckpoint: "the file is cut or was changed: replay it as it was written, or another file of the log, of which each stands for itself",
	ErrLimit:      "no overlapd writes such a line: look whether this is a decision log",
}

// reader reads a log, line by line.
type reader struct {
	name    string
	in      *bufio.Reader
	head    head
	line    int // the number of the line that was read last, from 1
	text    []byte
	torn    bool // the last line has no end, and was left out
	resumes bool // the next record must be a checkpoint
}

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
		return nil, r.fault(ErrFormat, fmt.Sprintf("the first line has the format %.80q, not %q", format.Format, Format))
	} else if format.Format != Format {
		return nil, r.fault(ErrVersion, fmt.Sprintf("%.80q", version))
	}
	if err := strict(text, &r.head); err != nil {
		return nil, r.fault(ErrFormat, err.Error())
	}
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
	rec := &record{Event: new(overlap.Event), Explanation: new(overlap.Explanation), line: r.line, text: text}
	if err := strict(text, rec); err != nil {
		return nil, r.fault(ErrRecord, err.Error())
	}
	if err := rec.validate(); err != nil {
		return nil, r.fault(ErrRecord, err.Error())
	}
	if r.resumes && rec.Type != typeCheckpoint && rec.Type != typeGap {
		return nil, r.fault(ErrCheckpoint, fmt.Sprintf("%q stands where one is due", rec.Type))
	}
	r.resumes = rec.Type == typeGap
	return rec, nil
}

// next returns the next line without its end. A last line without one was
// torn by a crash: it is left out.
func (r *reader) next() ([]byte, error) {
	r.text = r.text[:0]
	r.line++
	for {
		part, err := r.in.ReadSlice('\n')
		if len(r.text)+len(part) > maxLineBytes {
			return nil, r.fault(ErrLimit, fmt.Sprintf("at most %d bytes are read", maxLineBytes))
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

// fault names the place of an error of reading, the reason and the remedy.
func (r *reader) fault(err error, reason string) error {
	return fmt.Errorf("%s:%d: %w: %s; %s", r.name, r.line, err, reason, remedies[err])
}
