package journal

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

var update = flag.Bool("update", false, "write the log into testdata")

// steady predicts that an operator takes a millisecond, and that spans which
// run together take half as long as one after another.
type steady struct{}

func (steady) Predict(groups []models.Group, estimates []models.Estimate) {
	for i, g := range groups {
		var sum time.Duration
		for _, s := range g.Spans {
			sum += time.Duration(s.Len()) * time.Millisecond
		}
		if len(g.Spans) > 1 {
			sum /= 2
		}
		estimates[i] = models.Estimate{Latency: sum, Bound: sum + sum/10}
	}
}

const ms = time.Millisecond

// TestGoldenLog holds the format: every kind of record that a scheduler makes
// stands in testdata/golden.log.
func TestGoldenLog(t *testing.T) {
	c := overlap.Config{Policy: "overlap", Devices: []overlap.Predictor{steady{}}, MaxRetries: 1, Services: []models.Service{
		{ID: 0, Name: "resnet", Operators: 10, QoSTarget: 1000 * ms, QueueLimit: 2, MaxBatch: 4},
		{ID: 1, Name: "bert", Operators: 20, QoSTarget: 1000 * ms, QueueLimit: 2, MaxBatch: 1},
	}}
	dir := t.TempDir()
	w, err := Open(dir, quick())
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(c, w, testHeader())
	if err != nil {
		t.Fatal(err)
	}
	play(t, s)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`"created":"[^"]*"`).ReplaceAll(text, []byte(`"created":"2026-01-01T00:00:00Z"`))
	golden := filepath.Join("testdata", "golden.log")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
	report, err := Replay("golden.log", bytes.NewReader(want), ReplayOptions{})
	if err != nil || !report.Reproduced || report.Rounds < 3 {
		t.Errorf("%v, %+v", err, report)
	}
	for _, e := range []event{eventArrive, eventNext, eventPlan, eventFinish, eventCancel, eventDown, eventUp, eventLoad, eventAdd, eventChange, eventRemove, eventDrain, eventCheckpoint} {
		if !bytes.Contains(want, []byte(`{"e":"`+e+`"`)) {
			t.Errorf("no %s in the log", e)
		}
	}
}

// play lets a scheduler do a bit of everything.
func play(t *testing.T, s *Scheduler) {
	var round overlap.Round
	next := func(now time.Duration) {
		r, ok := s.Next(now)
		if !ok {
			t.Fatalf("no round at %v", now)
		}
		round = r
	}
	finish := func(now time.Duration, status ...models.Status) {
		took := round.Predicted.Latency + ms/2
		o := models.Outcome{Round: round.Number, Took: took}
		for i, sp := range round.Group.Spans {
			o.Spans = append(o.Spans, models.SpanOutcome{Span: sp, Status: status[i], Reached: sp.End, Took: took})
		}
		if err := s.Finish(now, o); err != nil {
			t.Fatal(err)
		}
		s.Answers()
		s.Released()
	}
	arrive := func(now time.Duration, id models.QueryID, service models.ServiceID, in time.Duration) error {
		return s.Arrive(now, models.Query{
			ID: id, Service: service, Size: 1, SeqLen: 64 * int(service), Shape: 0xabcdef, Arrival: now, Deadline: now + in,
		})
	}
	for id := models.QueryID(1); id <= 3; id++ {
		if err := arrive(1*ms, id, 0, 100*ms); (err != nil) != (id == 3) {
			t.Fatal(err)
		}
	}
	_ = arrive(1*ms, 4, 1, 60*ms)
	next(2 * ms)
	_ = arrive(3*ms, 5, 0, 200*ms)
	s.Plan(4 * ms)
	finish(18*ms, models.SpanDone, models.SpanDone)
	next(18 * ms)
	_ = arrive(21*ms, 6, 1, 100*ms)
	s.Cancel(22*ms, 5)
	s.Cancel(22*ms, 99)
	finish(29*ms, models.SpanDone, models.SpanDone)
	next(30 * ms)
	finish(51*ms, models.SpanDone)
	s.Down(52*ms, 1, 0)
	_ = arrive(53*ms, 7, 1, 5*ms)
	s.Next(60 * ms)
	if err := s.Load(61*ms, models.Service{ID: 1, Name: "bert", Operators: 12, QoSTarget: 1000 * ms, QueueLimit: 2, MaxBatch: 1}); err != nil {
		t.Fatal(err)
	}
	s.Up(62*ms, 1, 0)
	replace(t, s)
	s.Drain(63 * ms)
	if err := arrive(64*ms, 8, 2, 50*ms); !errors.Is(err, overlap.ErrDraining) {
		t.Fatal(err)
	}
}

// replace has a service take the place of another one.
func replace(t *testing.T, s *Scheduler) {
	m := models.Service{ID: 2, Name: "bert", Operators: 8, QoSTarget: 50 * ms, QueueLimit: 2, MaxBatch: 1}
	if err := s.Add(62*ms, m); err != nil {
		t.Fatal(err)
	}
	s.Up(62*ms, 2, 0)
	m.QoSTarget = 80 * ms
	for _, err := range []error{s.Change(62*ms, m), s.Remove(62*ms, 1)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Remove(62*ms, 1); !errors.Is(err, overlap.ErrUnknownService) {
		t.Fatal(err)
	}
}

// TestEveryMethodIsKnown fails when the scheduler has a method that is neither
// recorded nor known to change no decision.
func TestEveryMethodIsKnown(t *testing.T) {
	known := []string{
		"Add", "Arrive", "Cancel", "Change", "Down", "Drain", "Finish", "Load", "Moved", "Next", "Plan", "Remove", "Up", // recorded
		"Answers", "Moves", "Released", "Stops", // take what is recorded before
		"Check", "Ended", "Explain", "Allowed", "Idle", "Members", "Metrics", "Moving", "Paused", "Unanswered", "Waiting", "Wake", // look only
		"Snapshot", // overturns a plan; only taken where a checkpoint is
	}
	typ := reflect.TypeFor[*overlap.Scheduler]()
	for i := range typ.NumMethod() {
		if name := typ.Method(i).Name; !slices.Contains(known, name) {
			t.Errorf("overlap.Scheduler.%s: does it change decisions? Then it must be recorded", name)
		}
	}
}

// A scheduler decides the same, recorded or not.
func TestRecordingChangesNothing(t *testing.T) {
	for _, p := range overlap.Policies() {
		var metrics []overlap.Metrics
		for _, records := range []bool{true, false} {
			c := testConfig(p.Name, 4, 7)
			var s scheduler
			var err error
			if s, err = overlap.New(c); records {
				s, err = newScheduler(c, &capture{})
			}
			if err != nil {
				t.Fatal(err)
			}
			run := newWorld(s, c, 7)
			for range 2000 {
				run.step(t)
			}
			metrics = append(metrics, s.Metrics())
		}
		if diff := cmp.Diff(metrics[0], metrics[1]); diff != "" {
			t.Errorf("%s: %s", p.Name, diff)
		}
	}
}

func TestNewReportsFaults(t *testing.T) {
	w, err := Open(t.TempDir(), quick())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := New(overlap.Config{Policy: "best"}, w, testHeader()); err == nil {
		t.Error("a bad configuration is taken")
	}
}

// load is a scheduler with a constant number of waiting queries.
type load struct {
	s     scheduler
	now   time.Duration
	id    models.QueryID
	spans []models.SpanOutcome
	serve [4]models.ServiceID // that queries come for, in turn
}

func loadConfig(policy string) overlap.Config {
	c := testConfig(policy, 4, 1)
	c.Devices[0] = steady{}
	for i := range c.Services {
		c.Services[i].QueueLimit = 100
	}
	return c
}

func newLoad(t testing.TB, w *Writer, policy string) *load {
	var s scheduler
	var err error
	if w != nil {
		s, err = New(loadConfig(policy), w, testHeader())
	} else {
		s, err = overlap.New(loadConfig(policy))
	}
	if err != nil {
		t.Fatal(err)
	}
	l := &load{s: s, serve: [4]models.ServiceID{0, 1, 2, 3}}
	for range 64 {
		l.arrive(t)
	}
	return l
}

func (l *load) arrive(t testing.TB) {
	l.id++
	err := l.s.Arrive(l.now, models.Query{
		ID: l.id, Service: l.serve[l.id%4], Size: 1, Arrival: l.now, Deadline: l.now + time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// round runs one group, plans while it runs, and lets as many queries arrive
// as were answered.
func (l *load) round(t testing.TB) {
	r, ok := l.s.Next(l.now)
	if !ok {
		t.Fatal("nothing to run")
	}
	l.s.Plan(l.now)
	l.spans = l.spans[:0]
	for _, s := range r.Group.Spans {
		l.spans = append(l.spans, models.SpanOutcome{Span: s, Reached: s.End, Took: r.Predicted.Latency})
	}
	l.now += r.Predicted.Latency
	if err := l.s.Finish(l.now, models.Outcome{Round: r.Number, Took: r.Predicted.Latency, Spans: l.spans}); err != nil {
		t.Fatal(err)
	}
	l.s.Released()
	for range l.s.Answers() {
		l.arrive(t)
	}
}

func TestRecordingDoesNotAllocate(t *testing.T) {
	for _, p := range overlap.Policies() {
		w, err := Open(t.TempDir(), quick())
		if err != nil {
			t.Fatal(err)
		}
		l := newLoad(t, w, p.Name)
		round := func() {
			l.round(t)
			w.keepUp() // a writer that is behind costs a checkpoint
		}
		for range 1000 {
			round()
		}
		if n := testing.AllocsPerRun(500, round); n != 0 {
			t.Errorf("%s: a round allocates %v times", p.Name, n)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
