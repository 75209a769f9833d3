package executor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// startUnits returns an executor whose workers run two spans at once.
func startUnits(t testing.TB, change func(*Options), services int) *fixture {
	t.Helper()
	return startReady(t, func(o *Options) {
		for i := range o.Services {
			o.Services[i].Load.Units = 2
		}
		if change != nil {
			change(o)
		}
	}, services)
}

// Cores of a worker that is lost go to others, and those of runs that have ended.
func TestCoresComeBack(t *testing.T) {
	f := startUnits(t, func(o *Options) {
		for i := range o.Services {
			o.Services[i].Load.Cores = []int{0, 0}
		}
	}, 1)
	taken := func() uint64 {
		f.Executor.cores.mu.Lock()
		defer f.Executor.cores.mu.Unlock()
		return f.Executor.cores.taken
	}
	o := f.do(f.half(1, "one"))
	o.Queries[0].Release()
	if on := taken(); on != 0 {
		t.Errorf("the run has ended, and cores %b are taken", on)
	}
	f.do(f.half(2, "1 exit"))
	if on := taken(); on != 0 {
		t.Errorf("the worker is lost, and cores %b are taken", on)
	}
}

// half is whole on one unit.
func (f *fixture) half(batch models.BatchID, text string) SpanRequest {
	f.t.Helper()
	r := f.whole(0, batch, text)
	r.Span.Share = 1
	return r
}

// awaitWaiting returns when so many operators wait for a file.
func (f *fixture) awaitWaiting(n int) {
	f.t.Helper()
	for range n {
		awaitEvent(f, WorkerOutput, func(e Event) bool { return e.Line == "waiting" })
	}
}

// Spans of one service run at once, end in any order, and each batch may go on with another
// share.
func TestSpansOfAServiceRunAtOnce(t *testing.T) {
	f := startUnits(t, nil, 1)
	one, other := t.TempDir()+"/one", t.TempDir()+"/other"
	first := f.half(1, "1 signal "+one)
	first.Span.End = 2
	a := f.send(first)
	b := f.send(f.half(2, "1 signal "+other))
	f.awaitWaiting(2)
	c := f.send(f.half(3, "third"))
	touch(t, other)
	for _, want := range []uint64{b, c} {
		if o := f.receive(); o.Round != want || o.Spans[0].Status != models.SpanDone {
			t.Fatalf("expected round %d: %+v", want, o)
		} else {
			texts(o.Spans[0])
		}
	}
	touch(t, one)
	if o := f.receive(); o.Round != a || o.Spans[0].Reached != 2 {
		t.Fatalf("expected round %d: %+v", a, o)
	}
	s := f.do(SpanRequest{Span: models.Span{Batch: 1, Start: 2, End: fakeOperators}})
	if got := texts(s); !slices.Equal(got, []string{"1 signal " + one + "0'1'23"}) {
		t.Errorf("on a half and then on all: %q", got)
	}
}

// A span with all units, and one that follows another of its batch, wait.
func TestSpanAwaitsWhatItMustFollow(t *testing.T) {
	f := startUnits(t, nil, 1)
	gate := t.TempDir() + "/gate"
	first, rest := f.half(1, "1 signal "+gate), SpanRequest{Span: models.Span{Batch: 1, Start: 2, End: fakeOperators, Share: 1}}
	first.Span.End = 2
	f.send(first)
	f.awaitWaiting(1)
	f.send(rest)
	f.send(f.whole(0, 2, "all"))
	f.send(f.half(3, "half"))
	f.Release(0, 9)
	select {
	case o := <-f.Outcomes():
		t.Fatalf("it did not wait: %+v", o)
	case <-time.After(20 * time.Millisecond):
	}
	touch(t, gate)
	for round := uint64(1); round <= f.round; round++ {
		if o := f.receive(); o.Round != round || o.Spans[0].Status != models.SpanDone {
			t.Fatalf("expected round %d: %+v", round, o)
		} else {
			texts(o.Spans[0])
		}
	}
}

func TestStopLeavesTheOther(t *testing.T) {
	f := startUnits(t, nil, 1)
	one, other := t.TempDir()+"/one", t.TempDir()+"/other"
	f.send(f.half(1, "1 signal "+one))
	f.send(f.half(2, "1 signal "+other))
	f.awaitWaiting(2)
	f.Stop(0, 1)
	touch(t, one)
	if o := f.receive(); o.Round != 1 || o.Spans[0].Status != models.SpanStopped || o.Spans[0].Reached != 2 {
		t.Fatalf("the stopped one: %+v", o)
	}
	touch(t, other)
	if o := f.receive(); o.Round != 2 || o.Spans[0].Status != models.SpanDone {
		t.Fatalf("the other: %+v", o)
	} else {
		texts(o.Spans[0])
	}
}

// A detached span leaves the other spans of its worker alone until its worker is killed.
func TestOverrunTakesTheOtherAlong(t *testing.T) {
	f := startUnits(t, func(o *Options) { o.OverrunGrace = 50 * time.Millisecond }, 1)
	never := t.TempDir() + "/never"
	hangs := f.send(f.half(1, "1 signal "+never))
	f.awaitWaiting(1)
	if !f.SetApart(hangs) {
		t.Fatal("it was not set apart")
	}
	if o := f.receive(); o.Round != hangs || o.Spans[0].Status != models.SpanOverrun {
		t.Fatalf("set apart: %+v", o)
	}
	if s := f.do(f.half(2, "beside")); s.Status != models.SpanDone || texts(s)[0] != "beside0'1'2'3'" {
		t.Fatalf("beside it: %+v", s)
	}
	beside := f.send(f.half(3, "1 signal "+never))
	f.awaitWaiting(1)
	f.Abandon(0, 1)
	f.expectLoss(map[uint64]models.Status{hangs: models.SpanCrashed, beside: models.SpanLost}, ErrOverrun)
}

// expectLoss receives the outcome of rounds of one span that a worker took along, and waits
// until there is another.
func (f *fixture) expectLoss(want map[uint64]models.Status, cause error) {
	f.t.Helper()
	for range want {
		o := f.receive()
		if s := o.Spans[0]; s.Status != want[o.Round] || !errors.Is(s.Err, cause) {
			f.t.Errorf("round %d: %+v, expected status %v and %v", o.Round, s, want[o.Round], cause)
		}
	}
	awaitEvent(f, WorkerReady, nil)
	if s := f.do(f.half(99, "again")); s.Status != models.SpanDone {
		f.t.Errorf("after a restart: %+v", s)
	} else {
		texts(s)
	}
}

// When a worker crashes, nobody knows which of several spans is at fault.
func TestCrashOfSeveral(t *testing.T) {
	f := startUnits(t, nil, 1)
	one := f.send(f.half(1, "1 signal "+t.TempDir()+"/never"))
	f.awaitWaiting(1)
	f.expectLoss(map[uint64]models.Status{one: models.SpanLost, f.send(f.half(2, "1 exit 3")): models.SpanLost}, ErrExited)
	f.expectLoss(map[uint64]models.Status{f.send(f.half(3, "1 exit 3")): models.SpanCrashed}, ErrExited)
}

// The watchdog counts the time of each span, and knows which of them took too long.
func TestWatchdogOfSeveral(t *testing.T) {
	f := startUnits(t, func(o *Options) { o.SpanTimeout = 300 * time.Millisecond }, 1)
	long := f.send(f.half(1, "1 signal "+t.TempDir()+"/never"))
	f.awaitWaiting(1)
	time.Sleep(100 * time.Millisecond)
	short := f.send(f.half(2, "1 signal "+t.TempDir()+"/never"))
	f.awaitWaiting(1)
	f.expectLoss(map[uint64]models.Status{long: models.SpanCrashed, short: models.SpanLost}, ErrSpanTimeout)
}

// realUnits returns an executor whose worker runs a model of the zoo with ONNX Runtime, two
// spans at once.
func realUnits(t testing.TB, name string) (*fixture, *wire.Info) {
	t.Helper()
	if _, err := ort.Find(); errors.Is(err, ort.ErrNotFound) {
		t.Skip(err)
	}
	path, err := zoo.Build(name, t.TempDir(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	const memory = 64 << 20
	inputs, err := wire.NewInputArena(memory, false)
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, func(o *Options) {
		s := &o.Services[0]
		s.Inputs, s.OutputBytes, s.Env = inputs, memory, append(os.Environ(), roleEngine)
		s.Load = wire.LoadSpec{ModelPath: path, CacheDir: t.TempDir(), Threads: 2, Units: 2, MaxBatch: 2}
	}, path)
	for end := time.Now().Add(5 * patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if state, _ := f.State(0); state.Phase == Ready {
			break // resnet50 takes long to load on a machine that is busy
		}
	}
	return f, awaitEvent(f, WorkerReady, nil).Info
}

// request returns the span of all operators of a new batch with one query.
func (f *fixture) request(info *wire.Info, id models.BatchID, size, share int) SpanRequest {
	f.t.Helper()
	return SpanRequest{
		Span:    models.Span{Batch: id, End: len(info.Operators), Size: size, Share: share},
		Queries: []wire.QueryTensors{f.tensors(info, models.QueryID(id), size)},
	}
}

// Two batches at once have the outputs that they have alone, whatever the shares and the
// spans in which they run.
func TestUnitsOfAModel(t *testing.T) {
	for _, name := range []string{"tiny_cnn", "tiny_bert"} {
		t.Run(name, func(t *testing.T) {
			f, info := realUnits(t, name)
			shares := map[int]int{}
			for _, solo := range info.Solo {
				shares[solo.Share]++
			}
			if len(shares) != 2 || shares[0] != 2 || shares[1] != 2 {
				t.Errorf("isolated latencies by share: %v", shares)
			}
			var batches []SpanRequest
			var want []string
			for _, size := range []int{1, 2} {
				b := f.request(info, models.BatchID(size), size, 0)
				batches, want = append(batches, b), append(want, fmt.Sprint(bytesOf(f.do(b))))
			}
			random := rand.New(rand.NewPCG(1, 2))
			flying, of := map[uint64]SpanRequest{}, map[models.BatchID]int{}
			send := func(r SpanRequest) {
				r.Span.Share = random.IntN(2)
				r.Span.End = r.Span.Start + 1 + random.IntN(len(info.Operators)-r.Span.Start)
				flying[f.send(r)] = r
			}
			next := models.BatchID(10)
			begin := func() {
				kind := random.IntN(len(batches))
				r := batches[kind]
				r.Span.Batch, of[next] = next, kind
				next++
				send(r)
			}
			begin()
			begin()
			for ended := 0; ended < 200; {
				o := f.receive()
				s, r := o.Spans[0], flying[o.Round]
				delete(flying, o.Round)
				if s.Status != models.SpanDone {
					t.Fatalf("a span ended with %+v: %v", s, s.Err)
				}
				if !s.Finished {
					r.Span.Start, r.Queries = s.Reached, nil
					send(r)
					continue
				}
				if got := fmt.Sprint(bytesOf(s)); got != want[of[r.Span.Batch]] {
					t.Fatalf("batch %d has other outputs than alone", r.Span.Batch)
				}
				if ended++; ended < 199 {
					begin()
				}
			}
		})
	}
}

// BenchmarkUnits runs two batches of resnet50 on one core each, at once and one after the
// other, and each of them on both cores.
func BenchmarkUnits(b *testing.B) {
	f, info := realUnits(b, "resnet50")
	batches := []SpanRequest{f.request(info, 1, 1, 0), f.request(info, 2, 1, 0)}
	run := func(share int, once bool) time.Duration {
		begin := time.Now()
		for i, r := range batches {
			r.Span.Share = share
			if f.send(r); once && i == 0 {
				continue
			}
			bytesOf(f.receive().Spans[0])
		}
		if once {
			bytesOf(f.receive().Spans[0])
		}
		return time.Since(begin)
	}
	var at, after, both []time.Duration
	for b.Loop() {
		at, after, both = append(at, run(1, true)), append(after, run(1, false)), append(both, run(0, false))
	}
	ms := func(list []time.Duration) float64 { return float64(stats.Median(list).Microseconds()) / 1000 }
	b.ReportMetric(ms(at), "ms/at-once")
	b.ReportMetric(ms(after), "ms/in-turn")
	b.ReportMetric(ms(both), "ms/on-both")
	b.ReportMetric(ms(after)/ms(at), "ratio")
}
