package executor

import (
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
)

func touch(t testing.TB, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// awaitAnother waits for the worker that comes after a loss, and shows that it
// works.
func awaitAnother(f *fixture, batch models.BatchID) {
	f.t.Helper()
	awaitEvent(f, WorkerReady, nil)
	s := f.do(f.whole(0, batch, "again"))
	if got := texts(s); s.Status != models.SpanDone || got[0] != "again0123" {
		f.t.Fatalf("%q, %+v", got, s)
	}
}

func TestCrashes(t *testing.T) {
	for _, c := range []struct {
		name, text string
		cause      error
		says       []string
	}{
		{"exit", "1 exit 3", ErrExited, []string{"exit status 3"}},
		{"panic", "1 panic the reason", ErrExited, []string{"exit status 2", "panic: the reason"}},
		{"segmentation fault", "1 segv", ErrExited, []string{"unexpected fault address"}},
		{"garbage", "1 garbage", ErrProtocol, []string{"signal: killed"}},
		{"killed", "1 kill", ErrKilled, []string{"signal: killed"}},
		{"socket closed", "1 close", ErrExited, []string{"signal: killed"}},
		{"hang", "1 hang", ErrSpanTimeout, []string{"signal: killed"}},
		{"hang in another group", "1 regroup", ErrSpanTimeout, []string{"signal: killed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := startReady(t, func(o *Options) { o.SpanTimeout = 300 * time.Millisecond }, 1)
			s := f.do(f.whole(0, 1, c.text))
			if s.Status != models.SpanCrashed || !errors.Is(s.Err, c.cause) || s.Finished || s.Queries != nil {
				t.Fatalf("%+v", s)
			}
			lost := awaitEvent(f, WorkerLost, nil)
			if lost.PID == 0 || len(lost.Batches) != 1 || lost.Batches[0] != 1 {
				t.Errorf("%+v", lost)
			}
			// How the process ended is in the span's error too, if it was
			// reaped in time.
			for _, text := range append(c.says, "service0") {
				if !strings.Contains(lost.Err.Error(), text) {
					t.Errorf("%q is not in %v", text, lost.Err)
				}
			}
			if !strings.HasPrefix(s.Err.Error(), "worker of service0: ") {
				t.Errorf("%v", s.Err)
			}
			awaitAnother(f, 1)
		})
	}
}

func TestLyingWorkersAreKilled(t *testing.T) {
	for _, about := range lies {
		t.Run(about, func(t *testing.T) {
			f := startReady(t, nil, 1)
			s := f.do(f.whole(0, 1, "1 lie "+about))
			if s.Status != models.SpanCrashed || !errors.Is(s.Err, ErrProtocol) {
				t.Fatalf("%+v", s)
			}
			if state, _ := f.State(0); state.OutputLeases != 0 {
				t.Errorf("%d outputs of a liar are leased", state.OutputLeases)
			}
			awaitAnother(f, 2)
		})
	}
}

// No device works longer on a span than the host waits for it.
func TestDeviceTimeIsBounded(t *testing.T) {
	f := startReady(t, nil, 1)
	s := f.do(f.whole(0, 1, "1 lie time"))
	if s.Status != models.SpanDone || s.DeviceTook > patience || s.Took > patience {
		t.Errorf("%+v", s)
	}
	texts(s)
}

// What was lost with a worker is not found in the next one, and what the
// daemon has of it stays.
func TestLossTakesPausedBatches(t *testing.T) {
	f := startReady(t, nil, 1)
	first := f.whole(0, 1, "paused")
	first.Span.End = 2
	f.do(first)
	finished := f.do(f.whole(0, 2, "kept"))
	f.do(f.whole(0, 3, "1 exit 1"))
	lost := awaitEvent(f, WorkerLost, nil)
	if len(lost.Batches) != 2 || lost.Batches[0] != 1 || lost.Batches[1] != 3 {
		t.Errorf("lost batches: %v", lost.Batches)
	}
	awaitAnother(f, 4)
	s := f.do(SpanRequest{Span: models.Span{Batch: 1, Start: 2, End: 4}})
	if s.Status != models.SpanLost || !errors.Is(s.Err, ErrBatchLost) {
		t.Errorf("%+v", s)
	}
	if got := texts(finished); got[0] != "kept0123" {
		t.Errorf("output of the lost worker is now %q", got)
	}
	// The inputs are still there: the query runs again as it is.
	first.Span.End = fakeOperators
	if got := texts(f.do(first)); got[0] != "paused0123" {
		t.Errorf("second run: %q", got)
	}
}

func TestRunWithoutWorker(t *testing.T) {
	f := start(t, nil, "hang")
	if s := f.do(f.whole(0, 1, "a")); s.Status != models.SpanLost || !errors.Is(s.Err, ErrNotReady) {
		t.Fatalf("%+v", s)
	}
	if f.Stop(0, 1) {
		t.Error("nothing can be in flight")
	}
}

// What is written is passed on; the error has the end of it.
func TestOutputOfWorkers(t *testing.T) {
	f := startReady(t, nil, 1)
	texts(f.do(f.whole(0, 1, "0 say hello there")))
	if e := awaitEvent(f, WorkerOutput, nil); e.Line != "hello there" {
		t.Errorf("%q", e.Line)
	}
	f.do(f.whole(0, 2, "0 flood", "1 exit 1"))
	lost := awaitEvent(f, WorkerLost, nil)
	if text := lost.Err.Error(); strings.Contains(text, "\n") || strings.Contains(text, "line 2987 ") || !strings.HasSuffix(text, "line 2999") {
		t.Errorf("text of the error: %s", text)
	}
}

func TestLoadFailures(t *testing.T) {
	for _, c := range []struct {
		path  string
		cause error
		says  string
	}{
		{"fail no such model", ErrLoad, "no such model"},
		{"exit 4", ErrExited, "exit status 4"},
		{"panic loading", ErrExited, "panic: loading"},
		{"garbage", ErrProtocol, "frame size"},
		{"close", ErrExited, "killed"},
		{"lie hello", ErrProtocol, "hello while loading"},
	} {
		t.Run(c.path, func(t *testing.T) {
			f := start(t, func(o *Options) { o.RestartLimit = 1 }, c.path)
			for range 2 {
				awaitEvent(f, WorkerStarting, nil)
				lost := awaitEvent(f, WorkerLost, nil)
				if !errors.Is(lost.Err, c.cause) || !strings.Contains(lost.Err.Error(), c.says) {
					t.Errorf("%v", lost.Err)
				}
			}
			failed := awaitEvent(f, WorkerFailed, nil)
			if !errors.Is(failed.Err, ErrRestartLimit) || !errors.Is(failed.Err, c.cause) {
				t.Errorf("%v", failed.Err)
			}
			if state, _ := f.State(0); state.Phase != GivenUp || state.Starts != 2 || state.PID != 0 || !errors.Is(state.Err, ErrRestartLimit) {
				t.Errorf("%+v", state)
			}
		})
	}
}

// TestLoadThatNeverEnds checks that a service fails permanently as soon as its model exceeds
// LoadTimeout, because its clients have waited for that long. It is retried like any other.
func TestLoadThatNeverEnds(t *testing.T) {
	f := start(t, func(o *Options) {
		o.LoadTimeout, o.RetryMin, o.RetryMax = 200*time.Millisecond, 10*time.Millisecond, 20*time.Millisecond
	}, "hang")
	for _, want := range []time.Duration{10, 20, 20} {
		failed := awaitEvent(f, WorkerFailed, nil)
		if !errors.Is(failed.Err, ErrLoadTimeout) || errors.Is(failed.Err, ErrRestartLimit) || !strings.Contains(failed.Err.Error(), "more than 200ms") || failed.RestartIn != want*time.Millisecond {
			t.Errorf("%v, again in %v", failed.Err, failed.RestartIn)
		}
	}
}

func TestMissingBinary(t *testing.T) {
	f := start(t, func(o *Options) { o.Command, o.RestartLimit = []string{"/does/not/exist"}, 2 }, "")
	if lost := awaitEvent(f, WorkerLost, nil); !errors.Is(lost.Err, ErrStart) || !errors.Is(lost.Err, os.ErrNotExist) {
		t.Error(lost.Err)
	}
	awaitEvent(f, WorkerFailed, nil)
}

func TestBadHello(t *testing.T) {
	// A worker of another version is as good as none: here, one that greets
	// with the PID of nobody.
	f := start(t, func(o *Options) {
		o.RestartLimit = 1
		o.Services[0].Env = append(os.Environ(), roleStranger)
	}, "")
	if lost := awaitEvent(f, WorkerLost, nil); !errors.Is(lost.Err, ErrProtocol) || !strings.Contains(lost.Err.Error(), "hello of process 0") {
		t.Error(lost.Err)
	}
}

// TestBeforeKill checks that BeforeKill is called before a hung worker is killed, while
// the workers of other services continue. It is not called for an idle worker.
func TestBeforeKill(t *testing.T) {
	told := make(chan int, 8)
	f := startReady(t, func(o *Options) {
		o.SpanTimeout = 300 * time.Millisecond
		o.BeforeKill = func(_ models.ServiceID, pid int) {
			if err := syscall.Kill(pid, 0); err != nil {
				t.Errorf("process %d: %v", pid, err)
			}
			told <- pid
		}
	}, 1)
	s := f.do(f.whole(0, 1, "1 hang"))
	if s.Status != models.SpanCrashed || !errors.Is(s.Err, ErrSpanTimeout) {
		t.Fatalf("%+v", s)
	}
	if lost := awaitEvent(f, WorkerLost, nil); lost.PID != <-told {
		t.Errorf("another process than %d", lost.PID)
	}
	awaitAnother(f, 1)
	if err := f.Hold(t.Context(), errServer); err != nil {
		t.Fatal(err)
	}
	f.Resume()
	awaitAnother(f, 2)
	if len(told) > 0 {
		t.Error("it is told of a worker that had nothing to do")
	}
}

// TestBeforeKillOfALoad kills workers that load: that is work on the device as
// well.
func TestBeforeKillOfALoad(t *testing.T) {
	for name, c := range map[string]struct {
		path  string
		begun func(*fixture)
		want  int
	}{
		"works":      {"sleep 1h", func(f *fixture) { awaitEvent(f, WorkerProgress, nil) }, 1},
		"has failed": {"fail", func(f *fixture) { awaitEvent(f, WorkerLost, nil) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var told atomic.Int32
			f := start(t, func(o *Options) {
				o.BackoffMin, o.BackoffMax = time.Hour, time.Hour
				o.BeforeKill = func(models.ServiceID, int) { told.Add(1) }
			}, c.path)
			c.begun(f)
			f.awaitRemoved(f.remove(0))
			if n := int(told.Load()); n != c.want {
				t.Errorf("it is told %d times, want %d", n, c.want)
			}
		})
	}
}

// TestKillerIsCounted checks that waiting for a service's goroutines includes the one that
// kills its worker. The race detector finds a goroutine that is counted too late.
func TestKillerIsCounted(t *testing.T) {
	for range 100 {
		told := false
		e := &Executor{opts: Options{BeforeKill: func(models.ServiceID, int) { told = true }}}
		s := &service{executor: e}
		c, other, err := newConn(true)
		if err != nil {
			t.Fatal(err)
		}
		w := &worker{service: s, process: &child.Process{}, conn: c, lost: make(chan struct{})}
		w.mu.flights.list = make([]flight, 1)
		var caller sync.WaitGroup
		caller.Go(func() { w.lose(ErrSpanTimeout) })
		<-w.lost
		s.threads.Wait()
		if !told {
			t.Fatal("the killer outlives its service")
		}
		caller.Wait()
		e.workers.Wait()
		c.close()
		other.Close()
	}
}
