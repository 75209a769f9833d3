package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/overlapd/overlapd/overlap"
)

// Format is the first field of every decision log.
const Format = "overlapd-decisions/8"

// Header is the first line of a file.
type Header struct {
	Format string `json:"format"`

	// The daemon's version and commit, the device, and the time from which the times of the log
	// count: given to [New].
	Version string    `json:"version"`
	Commit  string    `json:"commit"`
	Device  string    `json:"device"`
	Epoch   time.Time `json:"epoch"`

	// Created is when the file was begun. Lost is the number of records that are missing before it,
	// and Why is the reason.
	Created time.Time `json:"created"`
	Lost    uint64    `json:"lost,omitempty"`
	Why     string    `json:"why,omitempty"`

	Config config            `json:"config"`
	State  *overlap.Snapshot `json:"state"`
}

// config is a configuration without its predictors and services: of each device there is the first
// that has the same predictor. The services are those of the state.
type config struct {
	overlap.Config
	Services *struct{} `json:",omitempty"`
	Devices  []int
	Selects  bool `json:",omitempty"` // it has a selector
}

const (
	// maxLineBytes is the length of the longest line that is written or read.
	maxLineBytes = 64 << 20

	// pendingBytes is what may wait for the writer, besides what it is writing, and wakeBytes is with
	// how much it begins before the flush interval is over.
	pendingBytes = 4 << 20
	wakeBytes    = 64 << 10
	// pendingFiles bounds the files that wait to begin, each of which has a state.
	pendingFiles = 8
)

// Options of a Writer.
type Options struct {
	// MaxFileBytes is how many bytes of records a file takes, besides its header,
	// before the next is begun, and MaxFiles how many files are kept.
	MaxFileBytes int64
	MaxFiles     int
	// FlushInterval is the time after which a record is in the file at the latest,
	// RetryInterval that between two attempts after a failure.
	FlushInterval time.Duration
	RetryInterval time.Duration

	// Stopped is called when the log cannot be written, Resumed when it can
	// be again, both on the writer's goroutine.
	Stopped func(err error)
	Resumed func(lost uint64)
}

// DefaultOptions returns the options of a daemon.
func DefaultOptions() Options {
	return Options{
		MaxFileBytes: 64 << 20, MaxFiles: 4, FlushInterval: time.Second, RetryInterval: 10 * time.Second,
		Stopped: func(error) {}, Resumed: func(uint64) {},
	}
}

// Writer takes the records of one Tee to files.
//
// The scheduler's goroutine appends to what is pending, under a lock that is never held for longer
// than it takes to encode a record or to copy the scheduler's state. The writer's goroutine, which
// alone touches files, takes all of it at once. When too much is pending, records are lost until it
// was taken; then a new file begins, with which a replay goes on.
type Writer struct {
	options Options
	files   files         // belongs to the writer's goroutine
	wake    chan struct{} // holds one token
	closing chan struct{}
	done    chan struct{}
	closed  sync.Once
	err     error // returned by Close

	mu struct {
		sync.Mutex
		header  Header // begins every file
		pending []part
		spare   *lines    // empty, for the next part
		size    int64     // bytes of records in the file
		broken  bool      // records are lost until the next file begins
		retry   time.Time // when that may be
		lost    uint64    // records, before the next file
		why     string    // the last record was lost
		total   uint64    // records lost since the log was opened
		fault   error     // what the disk answers now
	}
}

// part is records that go on in the file where the part before it ended, or begin a file if they have
// a header.
type part struct {
	header *Header
	lines  *lines
}

// lines is a text of JSON values, each on a line of its own.
type lines struct {
	bytes.Buffer
	encoder *json.Encoder
}

func newLines() *lines {
	l := &lines{}
	l.encoder = json.NewEncoder(l)
	l.encoder.SetEscapeHTML(false)
	return l
}

// Open starts a new log in a folder, which is made if need be. Files of an
// earlier log are kept as older files of this one.
func Open(dir string, o Options) (*Writer, error) {
	return open(dir, o, createFile)
}

func open(dir string, o Options, create func(path string) (file, error)) (*Writer, error) {
	w := &Writer{
		options: o, files: files{dir: dir, max: o.MaxFiles, create: create},
		wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}),
	}
	w.mu.broken = true
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = w.files.prune()
	}
	if err == nil {
		err = w.files.rotate()
	}
	if err != nil {
		return nil, fmt.Errorf("decision log: %w; see to it that its folder can be written and has room, or record no decisions (decisions.log = false)", err)
	}
	go w.run()
	return w, nil
}

// use gives the log to a scheduler.
func (w *Writer) use(h Header, c overlap.Config) {
	h.Format, h.Config = Format, config{Config: c, Selects: c.Selector != nil}
	for _, p := range c.Devices {
		h.Config.Devices = append(h.Config.Devices, slices.Index(c.Devices, p))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.header = h
}

// begin is called before the scheduler is given an event. It begins a file if one is due: at first,
// behind a gap, and where a file is full. It waits while too many do, and while there is a plan, which
// is no part of the state: meanwhile records go on in the full file, or are lost.
func (w *Writer) begin(s *overlap.Scheduler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := w.mu.size >= w.options.MaxFileBytes
	if w.mu.broken {
		due = w.pending() <= pendingBytes/2 && !time.Now().Before(w.mu.retry)
	}
	if !due || len(w.mu.pending) == pendingFiles || s.Planned() {
		return
	}
	h, state := w.mu.header, s.Snapshot()
	h.Created, h.Lost, h.Why, h.State = time.Now().UTC(), w.mu.lost, w.mu.why, &state
	w.append(&h)
	w.mu.broken, w.mu.size, w.mu.lost, w.mu.why = false, 0, 0, ""
}

// record takes a record of which it keeps no part.
func (w *Writer) record(r *Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mu.broken && w.pending() > pendingBytes {
		w.mu.broken, w.mu.why = true, "the writer was behind"
	}
	if w.mu.broken {
		w.miss(1)
		return
	}
	if len(w.mu.pending) == 0 {
		w.append(nil)
	}
	l := w.mu.pending[len(w.mu.pending)-1].lines
	before := l.Len()
	if err := l.encoder.Encode(r); err != nil { // as of a number that is none
		w.mu.broken, w.mu.why = true, err.Error()
		w.miss(1)
		return
	}
	w.mu.size += int64(l.Len() - before)
	if w.pending() >= wakeBytes {
		select {
		case w.wake <- struct{}{}:
		default: // it was woken already
		}
	}
}

// append begins a part.
func (w *Writer) append(h *Header) {
	l := w.mu.spare
	if w.mu.spare = nil; l == nil {
		l = newLines()
	}
	w.mu.pending = append(w.mu.pending, part{h, l})
}

// pending returns how many bytes of records are pending.
func (w *Writer) pending() (n int) {
	for i := range w.mu.pending {
		n += w.mu.pending[i].lines.Len()
	}
	return n
}

// miss counts records that are not written.
func (w *Writer) miss(n int) {
	w.mu.lost += uint64(n)
	w.mu.total += uint64(n)
}

// Close writes what was recorded and closes the file. It returns the last
// error of the disk. The scheduler must not be used any more.
func (w *Writer) Close() error {
	w.closed.Do(func() { close(w.closing) })
	<-w.done
	return w.err
}

// run writes until the log is closed.
func (w *Writer) run() {
	defer close(w.done)
	tick := time.NewTicker(w.options.FlushInterval)
	defer tick.Stop()
	for {
		select {
		case <-w.wake:
			w.flush()
		case <-tick.C:
			w.flush()
		case <-w.closing:
			w.flush()
			err := w.files.close()
			if _, w.err = w.Lost(); w.err == nil {
				w.err = err
			}
			return
		}
	}
}

// flush writes all that was recorded.
func (w *Writer) flush() {
	parts := w.take()
	for i := range parts {
		if err := w.write(&parts[i]); err != nil {
			w.fail(err, parts[i:])
			return
		}
	}
	if len(parts) > 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		if l := parts[0].lines; l.Cap() <= 2*pendingBytes {
			l.Reset()
			w.mu.spare = l
		}
	}
}

// take returns what is pending. A header alone waits for its records.
func (w *Writer) take() (parts []part) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending() > 0 {
		parts, w.mu.pending = w.mu.pending, nil
	}
	return parts
}

// write appends a part to the file, or begins one with it. After an error the part holds the records
// that are in no file.
func (w *Writer) write(p *part) error {
	if p.header == nil {
		n, err := w.files.write(p.lines.Bytes())
		if err != nil {
			p.lines.Next(n)
		}
		return err
	}
	if err := w.files.rotate(); err != nil {
		return fmt.Errorf("beginning a file: %w", err)
	}
	text := newLines()
	if err := text.encoder.Encode(p.header); err != nil {
		return err
	}
	if n := text.Len(); n > maxLineBytes {
		return fmt.Errorf("a header of %d bytes, at most %d can be read again; lower the queue limits of services", n, maxLineBytes)
	}
	text.Write(p.lines.Bytes())
	if _, err := w.files.write(text.Bytes()); err != nil {
		return err
	}
	w.mu.Lock()
	failed := w.mu.fault != nil
	w.mu.fault = nil
	w.mu.Unlock()
	if failed {
		w.options.Resumed(p.header.Lost)
	}
	return nil
}

// fail stops the log, and calls Stopped once. What is not written is lost, with all that is pending.
func (w *Writer) fail(err error, left []part) {
	w.mu.Lock()
	first := w.mu.fault == nil
	for _, p := range append(left, w.mu.pending...) {
		w.miss(bytes.Count(p.lines.Bytes(), []byte("\n")))
		if p.header != nil {
			w.mu.lost += p.header.Lost // which no file holds now
		}
	}
	w.mu.pending, w.mu.broken, w.mu.retry = nil, true, time.Now().Add(w.options.RetryInterval)
	w.mu.fault, w.mu.why = err, err.Error()
	w.mu.Unlock()
	if first {
		w.options.Stopped(err)
	}
}

// Lost returns how many records were not written since the log was opened, and
// why none are written now, nil if they are.
func (w *Writer) Lost() (records uint64, fault error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.total, w.mu.fault
}
