package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// A worker that loads is passed on at a limited rate: whoever is told may be the
// one who schedules. An honest one tells progress when a phase begins, and within
// one no more than twenty times in a second.
const (
	progressBurst = 256
	progressEvery = 10 * time.Millisecond
)

// spawn starts a worker process for s, and the goroutines that go with it.
func (s *service) spawn() (*worker, error) {
	outputs, err := wire.NewOutputs(s.spec.OutputBytes)
	if err != nil {
		return nil, err
	}
	defer outputs.CloseFile()
	conn, other, err := newConn()
	if err != nil {
		outputs.Close()
		return nil, err
	}
	defer other.Close()
	begin := time.Now()
	process, err := s.startProcess([]*os.File{other, s.arena.File(), outputs.File()})
	if err != nil {
		outputs.Close()
		conn.close()
		return nil, err
	}
	w := &worker{
		service: s, process: process, conn: conn, frames: wire.NewFrameReader(conn), outputs: outputs,
		begin: begin, fly: make(chan struct{}, 1), lost: make(chan struct{}), read: make(chan struct{}),
	}
	w.mu.batches = make(map[models.BatchID][]models.QueryID)
	s.start(w.awaitExit)
	s.start(func() { conn.write(w.lost) })
	return w, nil
}

// startProcess starts what a worker runs in, with these files as its descriptors
// from 3 on.
func (s *service) startProcess(files []*os.File) (process, error) {
	opts := &s.executor.opts
	if opts.Inside != nil {
		return startInside(opts.Inside, s.spec.ID, files)
	}
	cmd := exec.Command(opts.Command[0], opts.Command[1:]...)
	cmd.Env = s.env()
	cmd.ExtraFiles = files
	p, err := child.Start(cmd, s.output)
	if err != nil {
		return nil, err
	}
	offer(p.PID())
	return p, nil
}

func (w *worker) awaitExit() {
	<-w.process.Done()
	w.lose(ErrExited)
}

// load brings a worker that was just started to where it can run spans.
func (w *worker) load(ctx context.Context) error {
	unwatch := context.AfterFunc(ctx, func() { w.lose(context.Cause(ctx)) })
	defer unwatch()
	limit := w.service.executor.opts.LoadTimeout
	late := time.AfterFunc(limit, func() { w.lose(fmt.Errorf("%w: over %v", ErrLoadTimeout, limit)) })
	defer late.Stop()
	var hello wire.Hello
	if err := w.expect(&hello); err != nil {
		return err
	}
	own := w.process.PID()
	if own == 0 {
		own = os.Getpid() // it is inside of this one
	}
	if hello.Protocol != wire.ProtocolVersion || hello.PID != own {
		return fmt.Errorf("%w: hello of process %d, version %d; expected process %d, version %d",
			ErrProtocol, hello.PID, hello.Protocol, own, wire.ProtocolVersion)
	}
	spec := w.service.spec.Load
	spec.PollNanos = int64(w.service.executor.opts.Poll)
	w.mu.Lock()
	err := w.sendLocked(&wire.Load{Spec: spec})
	w.mu.loads = true
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.awaitReady()
}

// expect reads the next frame, which must be m.
func (w *worker) expect(m wire.Message) error {
	kind, payload, err := w.next()
	if err != nil {
		return err
	}
	if kind != m.Kind() {
		return fmt.Errorf("%w: %s instead of %s", ErrProtocol, kind, m.Kind())
	}
	return protocol(m.Decode(payload))
}

func (w *worker) next() (wire.Kind, []byte, error) {
	kind, payload, err := w.frames.Next()
	if errors.Is(err, io.EOF) {
		err = ErrExited
	} else {
		err = protocol(err)
	}
	return kind, payload, err
}

func protocol(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}

// awaitReady passes on progress until the model is loaded.
func (w *worker) awaitReady() error {
	limit := rate.NewLimiter(rate.Every(progressEvery), progressBurst)
	for {
		kind, payload, err := w.next()
		if err != nil {
			return err
		}
		switch kind {
		case wire.KindProgress:
			var p wire.Progress
			if err := p.Decode(payload); err != nil {
				return protocol(err)
			}
			if limit.Allow() {
				w.service.emit(WorkerProgress{w.service.spec.ID, p.Phase, p.Done, p.Total})
			}
		case wire.KindReady:
			var ready wire.Ready
			if err := ready.Decode(payload); err != nil {
				return protocol(err)
			}
			w.info = ready.Info
			w.answered()
			return nil
		case wire.KindLoadFailed:
			var failed wire.LoadFailed
			if err := failed.Decode(payload); err != nil {
				return protocol(err)
			}
			w.answered()
			return loadError(&failed)
		default:
			return fmt.Errorf("%w: %s while loading", ErrProtocol, kind)
		}
	}
}

// answered notes that the worker does not load any more.
func (w *worker) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.loads = false
}

// env returns the environment of the worker.
func (s *service) env() []string {
	switch {
	case s.spec.Env != nil:
		return withoutSecrets(s.spec.Env)
	case s.executor.opts.Env != nil:
		return withoutSecrets(s.executor.opts.Env)
	}
	return withoutSecrets(os.Environ())
}

// loadError wraps, besides ErrLoad, the sentinel of package segments that says
// why.
func loadError(m *wire.LoadFailed) error {
	if m.Code == 0 {
		return fmt.Errorf("%w: %s", ErrLoad, m.Message)
	}
	return fmt.Errorf("%w: %w", ErrLoad, (&wire.Failed{Code: m.Code, Message: m.Message}).Err())
}

// withheld are the variables that a worker does not get, by how their names
// begin. It parses models that others wrote, and needs neither what names or
// holds secrets nor a way to speak for the daemon.
var withheld = []string{
	"OTEL_EXPORTER_OTLP_", // headers with credentials, and the collector
	"OVERLAPD_TOKEN_FILE=",
	"CREDENTIALS_DIRECTORY=", // of systemd
	"NOTIFY_SOCKET=",
	"WATCHDOG_",
	"LISTEN_", // sockets that systemd passes
}

// withoutSecrets returns an environment without what a worker does not get.
func withoutSecrets(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(variable string) bool {
		return slices.ContainsFunc(withheld, func(begin string) bool { return strings.HasPrefix(variable, begin) })
	})
}

const (
	// oomHandicap is how much sooner than the daemon a worker is killed where
	// memory runs out, in thousandths of all memory there is. A worker that is
	// killed is replaced; with the daemon all services would end.
	oomHandicap = 500

	// oomMost is the most that the kernel takes.
	oomMost = 1000
)

// offer has the kernel kill a process before us where memory runs out. Raising
// that of one's own processes needs no right; where it cannot be, as in some
// containers, the kernel chooses as it likes.
func offer(pid int) {
	ours, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return
	}
	score, err := strconv.Atoi(string(bytes.TrimSpace(ours)))
	if err != nil {
		return
	}
	theirs := strconv.Itoa(min(score+oomHandicap, oomMost))
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(theirs), 0)
}
