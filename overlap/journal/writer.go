package journal

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/overlapd/overlapd/overlap"
)

// Format is the first field of every decision log.
const Format = "overlapd-decisions/2"

// earlierFormat is read too: its services stay as they were at first, and the
// configuration alone holds their targets.
const earlierFormat = "overlapd-decisions/1"

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

// config is a configuration without its predictor.
type config struct {
	overlap.Config
	Predictor *struct{} `json:"Predictor,omitempty"`
}

// Limits of a log.
const (
	MinFileBytes     = 1 << 12
	MaxFiles         = 1000
	MaxLineBytes     = 64 << 20
	MinFlushInterval = time.Millisecond

	// bufferBytes is what a buffer between the scheduler and the writer
	// holds, unless one record is longer; buffers is how many there are.
	bufferBytes = 64 << 10
	buffers     = 16
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
	return Options{MaxFileBytes: 64 << 20, MaxFiles: 4, FlushInterval: time.Second, RetryInterval: 10 * time.Second}
}

func (o *Options) validate() error {
	switch {
	case o.MaxFileBytes < MinFileBytes:
		return fmt.Errorf("%w: %d bytes in a file: want at least %d", ErrOptions, o.MaxFileBytes, MinFileBytes)
	case o.MaxFiles < 1 || o.MaxFiles > MaxFiles:
		return fmt.Errorf("%w: %d files: want 1 to %d", ErrOptions, o.MaxFiles, MaxFiles)
	case o.FlushInterval < MinFlushInterval || o.RetryInterval < MinFlushInterval:
		return fmt.Errorf("%w: intervals %v and %v: want at least %v", ErrOptions, o.FlushInterval, o.RetryInterval, MinFlushInterval)
	}
	return nil
}

// Writer takes the records of one Scheduler to files.
//
// The scheduler's goroutine fills a buffer under a lock that is never held
// for longer than a copy takes. A full buffer goes to the writer's goroutine,
// which alone touches files. When all buffers are on their way, records are
// lost until one is back; then a gap and a checkpoint are written, with which
// a replay goes on.
type Writer struct {
	options Options
	files   files
	full    chan chunk  // never blocks: there are no more buffers than it holds
	free    chan []byte // buffers
	closing chan struct{}
	done    chan struct{}
	closed  sync.Once
	err     error // returned by Close

	mu struct {
		sync.Mutex
		filling chunk
		open    bool  // filling may be filled; else a checkpoint must come first
		stopped bool  // the disk takes nothing
		since   int64 // bytes of records in the file since its checkpoint
		lost    uint64
		why     string // the last record was lost
		total   uint64 // events lost since the log was opened
		fault   error  // what the disk answers now
		head    head   // begins every file
		used    bool
	}

	line line // scratch of the scheduler's goroutine

	// What follows belongs to the writer's goroutine.
	failed   bool
	failedAt time.Time
	text     line // what stands before the records of a chunk
}

// chunk is what goes to the goroutine at once.
type chunk struct {
	data    []byte
	records uint64
	state   *stateBefore // nil if data goes on where the last chunk ended
}

// stateBefore is the state of the scheduler before the first record of a
// chunk.
type stateBefore struct {
	now    time.Duration
	state  overlap.Snapshot
	rotate bool
	lost   uint64 // events, before it
	why    string
}

// Why records were lost.
const (
	lostBehind = "the writer was behind"
	lostLong   = "a record was too long"
)

// Open starts a new log in a folder, which is made if need be. Files of an
// earlier log are kept as older files of this one.
func Open(dir string, o Options) (*Writer, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unwritable(err)
	}
	w := newWriter(dir, o, createFile)
	if err := w.files.rotate(); err != nil {
		return nil, unwritable(err)
	}
	go w.run()
	return w, nil
}

// unwritable adds to an error what to do about a log that cannot be begun.
func unwritable(err error) error {
	return fmt.Errorf("decision log: %w; see to it that its folder can be written and has room, or record no decisions (decisions.log = false)", err)
}

func newWriter(dir string, o Options, create func(path string) (file, error)) *Writer {
	w := &Writer{
		options: o, files: files{dir: dir, max: o.MaxFiles, create: create},
		full: make(chan chunk, buffers), free: make(chan []byte, buffers),
		closing: make(chan struct{}), done: make(chan struct{}),
	}
	for range buffers {
		w.free <- make([]byte, 0, bufferBytes)
	}
	return w
}

// use gives the log to a scheduler.
func (w *Writer) use(h Header, c overlap.Config) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.used {
		return ErrInUse
	}
	w.mu.used = true
	w.mu.head = head{Format: Format, Header: h, Config: config{Config: c}}
	w.mu.head.Config.Services = nil // those of each file's first checkpoint
	return nil
}

// begin implements sink.
func (w *Writer) begin() taking {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.mu.open && w.mu.since < w.options.MaxFileBytes:
		return takesRecord
	case w.mu.stopped:
		w.miss(1)
		return takesNothing
	case w.mu.open && w.mu.filling.records > 0:
		w.send()
	}
	if w.mu.filling.data == nil && !w.take() {
		w.lose(lostBehind)
		return takesNothing
	}
	return takesCheckpoint
}

// checkpoint implements sink.
func (w *Writer) checkpoint(now time.Duration, state overlap.Snapshot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.stopped {
		return // since begin
	}
	w.mu.filling.state = &stateBefore{
		now: now, state: state, lost: w.mu.lost, why: w.mu.why,
		rotate: w.mu.since >= w.options.MaxFileBytes,
	}
	w.mu.open, w.mu.lost, w.mu.why = true, 0, ""
	if w.mu.filling.state.rotate {
		w.mu.since = 0
	}
}

// record implements sink.
func (w *Writer) record(r *record) {
	line := w.line[:0]
	_ = line.put(r) // only the state of a checkpoint could fail
	w.line = line
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.mu.open: // since begin
		w.miss(1)
		return
	case len(line) > MaxLineBytes:
		w.lose(lostLong)
		return
	case w.mu.filling.records > 0 && len(w.mu.filling.data)+len(line) > bufferBytes:
		w.send()
		if !w.take() {
			w.lose(lostBehind)
			return
		}
	case w.mu.filling.data == nil && !w.take():
		w.lose(lostBehind)
		return
	}
	w.mu.filling.data = append(w.mu.filling.data, line...)
	w.mu.filling.records++
	w.mu.since += int64(len(line))
}

// lose drops a record. What follows needs a checkpoint.
func (w *Writer) lose(why string) {
	w.mu.open = false
	w.miss(1)
	w.mu.why = why
}

// miss counts records that are not written.
func (w *Writer) miss(n uint64) {
	w.mu.lost += n
	w.mu.total += n
}

// send gives the buffer to the goroutine.
func (w *Writer) send() {
	w.full <- w.mu.filling
	w.mu.filling = chunk{}
}

// take gets an empty buffer, if there is one.
func (w *Writer) take() bool {
	select {
	case b := <-w.free:
		w.mu.filling = chunk{data: b[:0]}
		return true
	default:
		return false
	}
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
		case c := <-w.full:
			w.write(c)
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
	for {
		select {
		case c := <-w.full:
			w.write(c)
			continue
		default:
		}
		c, again := w.unfinished()
		if c.records > 0 {
			w.write(c)
		}
		if !again {
			return
		}
	}
}

// unfinished takes away the buffer that is being filled, and reports whether
// a full one came before it.
func (w *Writer) unfinished() (c chunk, again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.full) > 0 {
		return chunk{}, true
	}
	if w.mu.filling.records > 0 {
		c, w.mu.filling = w.mu.filling, chunk{}
	}
	if w.mu.stopped && time.Since(w.failedAt) >= w.options.RetryInterval {
		w.mu.stopped = false
	}
	return c, false
}

// write appends a chunk to the file, and gives its buffer back.
func (w *Writer) write(c chunk) {
	switch {
	case w.failed && (c.state == nil || time.Since(w.failedAt) < w.options.RetryInterval):
		w.forget(&c) // it was on its way when the disk failed
	default:
		if err := w.put(&c); err != nil {
			w.fail(err, &c)
		} else if w.failed {
			w.resume()
			if w.options.Resumed != nil {
				w.options.Resumed(c.state.lost)
			}
		}
	}
	if cap(c.data) > 2*bufferBytes {
		c.data = make([]byte, 0, bufferBytes)
	}
	w.free <- c.data
}

func (w *Writer) put(c *chunk) error {
	if c.state == nil {
		return w.files.write(c.data)
	}
	if c.state.rotate && w.files.size > 0 || w.files.current == nil {
		if err := w.files.rotate(); err != nil {
			return fmt.Errorf("beginning a file: %w", err)
		}
	}
	var err error
	w.text = w.text[:0]
	if err = w.preface(&w.text, c.state); err != nil {
		return err
	}
	err = w.files.write(append(w.text, c.data...))
	if cap(w.text) > 2*bufferBytes {
		w.text = nil
	}
	return err
}

// preface appends what must stand before the records that follow a state.
func (w *Writer) preface(l *line, s *stateBefore) error {
	if w.files.size == 0 {
		w.mu.Lock()
		h := w.mu.head
		w.mu.Unlock()
		h.Created, h.Config.Services = time.Now().UTC(), s.state.Definitions()
		if err := l.json("", &h); err != nil {
			return err
		}
		*l = append(*l, '\n')
	}
	if s.lost > 0 {
		if err := l.put(&record{Event: eventGap, Lost: s.lost, Why: s.why}); err != nil {
			return err
		}
	}
	before := len(*l)
	if err := l.put(&record{Event: eventCheckpoint, At: s.now, State: &s.state}); err != nil {
		return err
	}
	if n := len(*l) - before; n > MaxLineBytes {
		return fmt.Errorf("%w: a checkpoint of %d bytes, at most %d can be read again; lower the queue limits of services", ErrLimit, n, MaxLineBytes)
	}
	return nil
}

// fail stops the log, and calls Stopped once.
func (w *Writer) fail(err error, c *chunk) {
	first := !w.failed
	w.failed, w.failedAt, w.err = true, time.Now(), err
	w.mu.Lock()
	w.mu.open, w.mu.stopped, w.mu.why, w.mu.fault = false, true, err.Error(), err
	w.mu.Unlock()
	w.forget(c)
	if first && w.options.Stopped != nil {
		w.options.Stopped(err)
	}
}

// resume ends what fail began.
func (w *Writer) resume() {
	w.failed, w.err = false, nil
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.fault = nil
}

// Lost returns how many events were not written since the log was opened, and
// why none are written now, nil if they are.
func (w *Writer) Lost() (events uint64, fault error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.total, w.mu.fault
}

// forget counts what is in a chunk, and in the buffer that is being filled, as
// lost.
func (w *Writer) forget(c *chunk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.miss(c.records + w.mu.filling.records)
	for _, s := range []*stateBefore{c.state, w.mu.filling.state} {
		if s != nil {
			w.mu.lost += s.lost // no gap counts them now
		}
	}
	w.mu.filling = chunk{data: w.mu.filling.data[:0]}
}
