package journal

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/overlapd/overlapd/overlap"
)

// Format is the first field of every decision log.
const Format = "overlapd-decisions/6"

// Header is where a log comes from: the program's version and commit, the device,
// and the time from which the times of the log count.
type Header struct {
	Version string    `json:"version"`
	Commit  string    `json:"commit"`
	Device  string    `json:"device"`
	Epoch   time.Time `json:"epoch"`
}

// head is the first line of a file. The services of its configuration are those
// of the checkpoint that follows; of one that was removed there is the ID only.
type head struct {
	Format string `json:"format"`
	Header
	Created time.Time `json:"created"` // when the file was begun
	Config  config    `json:"config"`
}

// config is a configuration without its predictors: of each device there is the first
// that is like it. Without any there is one device.
type config struct {
	overlap.Config
	Devices []int `json:"Devices,omitempty"`
	Selects bool  `json:"Selects,omitempty"` // it has a selector
}

// kinds returns the Devices of a config.
func kinds(devices []overlap.Predictor) (like []int) {
	if len(devices) == 1 {
		return nil
	}
	for _, p := range devices {
		like = append(like, slices.Index(devices, p))
	}
	return like
}

const (
	// maxLineBytes is the length of the longest line that is written or read.
	maxLineBytes = 64 << 20

	// pendingBytes is what may wait for the writer, besides what it is writing,
	// and wakeBytes is with how much it begins before the flush interval is over.
	pendingBytes = 512 << 10
	wakeBytes    = 64 << 10
)

// Options of a Writer.
type Options struct {
	// MaxFileBytes is how many bytes of records a file takes, besides its checkpoint,
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
// The scheduler's goroutine appends to what is pending, under a lock that is
// never held for longer than a copy takes. The writer's goroutine, which alone
// touches files, takes all of it at once and leaves the memory of what it wrote
// last in its place. When too much is pending, records are lost until it was
// taken; then a gap and a checkpoint are written, with which a replay goes on.
type Writer struct {
	options Options
	files   files
	wake    chan struct{} // holds one token
	closing chan struct{}
	done    chan struct{}
	closed  sync.Once
	err     error // returned by Close

	mu struct {
		sync.Mutex
		pending pending
		open    bool   // records go on where the last one ended; else a checkpoint must come first
		stopped bool   // the disk takes nothing
		since   int64  // bytes of records in the file since its checkpoint
		lost    uint64 // events, before the next checkpoint
		why     string // the last record was lost
		total   uint64 // events lost since the log was opened
		fault   error  // what the disk answers now
		head    head   // begins every file
	}

	line *lines // scratch of the scheduler's goroutine

	// What follows belongs to the writer's goroutine.
	failedAt time.Time // zero if the last attempt went well
	writing  pending
	text     *lines // what stands before the records of a part
}

// pending are records that are not written yet.
type pending struct {
	data  []byte
	parts []part
}

// part is records that go on where the part before it ended, or, if it has a state, follow that.
type part struct {
	// from is where it begins in the data.
	from    int
	records uint64

	// state is that of the scheduler at its latest time, now. It begins a file if rotate is set.
	state  *overlap.Snapshot
	now    time.Duration
	rotate bool

	// lost is the number of records before the state that are missing, and why they are.
	lost uint64
	why  string
}

// Open starts a new log in a folder, which is made if need be. Files of an
// earlier log are kept as older files of this one.
func Open(dir string, o Options) (*Writer, error) {
	return open(dir, o, createFile)
}

func open(dir string, o Options, create func(path string) (file, error)) (*Writer, error) {
	w := &Writer{
		options: o, files: files{dir: dir, max: o.MaxFiles, create: create},
		wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}), line: newLines(), text: newLines(),
	}
	w.mu.pending.data, w.writing.data = make([]byte, 0, pendingBytes), make([]byte, 0, pendingBytes)
	err := os.MkdirAll(dir, 0o700)
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
	c.Services = nil // those of each file's first checkpoint
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.head = head{Format: Format, Header: h, Config: config{c, kinds(c.Devices), c.Selector != nil}}
}

// begin implements sink. It takes a checkpoint if one is due: where the log begins or has a gap,
// and where a file is full. A plan is no part of one, so it waits until there is none: meanwhile
// records go on in the full file, or are lost behind the gap.
func (w *Writer) begin(now time.Duration, s *overlap.Scheduler) {
	w.mu.Lock()
	due := w.mu.since >= w.options.MaxFileBytes
	if !w.mu.open {
		due = !w.mu.stopped && len(w.mu.pending.data) <= pendingBytes/2
	}
	w.mu.Unlock()
	if !due || s.Planned() {
		return
	}
	state := s.Snapshot()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.stopped {
		return // meanwhile
	}
	p, rotate := &w.mu.pending, w.mu.since >= w.options.MaxFileBytes
	p.parts = append(p.parts, part{from: len(p.data), state: &state, now: now, rotate: rotate, lost: w.mu.lost, why: w.mu.why})
	if w.mu.open, w.mu.lost, w.mu.why = true, 0, ""; rotate {
		w.mu.since = 0
	}
}

// record implements sink.
func (w *Writer) record(r *record) {
	w.line.text.Reset()
	_ = w.line.put(r) // only the state of a checkpoint could fail
	line := w.line.text.Bytes()
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &w.mu.pending
	switch {
	case !w.mu.open:
		w.miss(1)
		return
	case len(p.data) > 0 && len(p.data)+len(line) > pendingBytes:
		w.mu.open, w.mu.why = false, "the writer was behind"
		w.miss(1)
		return
	case len(p.parts) == 0:
		p.parts = append(p.parts, part{from: len(p.data)})
	}
	p.data = append(p.data, line...)
	p.parts[len(p.parts)-1].records++
	w.mu.since += int64(len(line))
	if len(p.data) >= wakeBytes {
		select {
		case w.wake <- struct{}{}:
		default: // it was woken already
		}
	}
}

// miss counts records that are not written.
func (w *Writer) miss(n uint64) {
	w.mu.lost += n
	w.mu.total += n
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
			if err := w.files.close(); w.err == nil {
				w.err = err
			}
			return
		}
	}
}

// flush writes all that was recorded.
func (w *Writer) flush() {
	w.take()
	p := &w.writing
	for i := range p.parts {
		end := len(p.data)
		if i+1 < len(p.parts) {
			end = p.parts[i+1].from
		}
		if err := w.write(&p.parts[i], p.data[p.parts[i].from:end]); err != nil {
			w.fail(err, p.parts[i:])
			break
		}
		if !w.failedAt.IsZero() {
			w.resume(p.parts[i].lost) // after a failure the first part has one
		}
	}
	clear(p.parts) // of their states
	p.parts, p.data = p.parts[:0], p.data[:0]
	if cap(p.data) > 2*pendingBytes {
		p.data = nil
	}
}

// take makes what is pending what is written now.
func (w *Writer) take() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.pending.data) > 0 { // a state alone waits for its records
		w.mu.pending, w.writing = w.writing, w.mu.pending
	}
	if w.mu.stopped && time.Since(w.failedAt) >= w.options.RetryInterval {
		w.mu.stopped = false
	}
}

// write appends the records of a part to the file, behind what must stand
// before them.
func (w *Writer) write(p *part, records []byte) error {
	if p.state == nil {
		return w.files.write(records)
	}
	if p.rotate && w.files.size > 0 || w.files.current == nil {
		if err := w.files.rotate(); err != nil {
			return fmt.Errorf("beginning a file: %w", err)
		}
	}
	text := &w.text.text
	text.Reset()
	if err := w.preface(p); err != nil {
		return err
	}
	text.Write(records)
	err := w.files.write(text.Bytes())
	if text.Cap() > 2*pendingBytes {
		w.text = newLines()
	}
	return err
}

// preface appends what must stand before the records that follow a state.
func (w *Writer) preface(p *part) error {
	l := w.text
	if w.files.size == 0 {
		w.mu.Lock()
		h := w.mu.head
		w.mu.Unlock()
		h.Created, h.Config.Services = time.Now().UTC(), p.state.Definitions()
		if err := l.put(&h); err != nil {
			return err
		}
	}
	if p.lost > 0 {
		_ = l.put(&record{Type: typeGap, Lost: p.lost, Why: p.why})
	}
	before := l.text.Len()
	if err := l.put(&record{Type: typeCheckpoint, At: p.now, State: p.state}); err != nil {
		return err
	}
	if n := l.text.Len() - before; n > maxLineBytes {
		return fmt.Errorf("%w: a checkpoint of %d bytes, at most %d can be read again; lower the queue limits of services", ErrLimit, n, maxLineBytes)
	}
	return nil
}

// fail stops the log, and calls Stopped once. What is not written is lost, with
// all that is pending.
func (w *Writer) fail(err error, left []part) {
	first := w.failedAt.IsZero()
	w.failedAt, w.err = time.Now(), err
	w.mu.Lock()
	w.mu.open, w.mu.stopped, w.mu.why, w.mu.fault = false, true, err.Error(), err
	for _, parts := range [][]part{left, w.mu.pending.parts} {
		for _, p := range parts {
			w.miss(p.records)
			w.mu.lost += p.lost // no gap counts them now
		}
	}
	w.mu.pending = pending{data: w.mu.pending.data[:0], parts: w.mu.pending.parts[:0]}
	w.mu.Unlock()
	if first {
		w.options.Stopped(err)
	}
}

// resume ends what fail began.
func (w *Writer) resume(lost uint64) {
	w.failedAt, w.err = time.Time{}, nil
	w.mu.Lock()
	w.mu.fault = nil
	w.mu.Unlock()
	w.options.Resumed(lost)
}

// Lost returns how many events were not written since the log was opened, and
// why none are written now, nil if they are.
func (w *Writer) Lost() (events uint64, fault error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.total, w.mu.fault
}
