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
	s, w, dir := begin(t, c, quick(), createFile)
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
	if l := replayText(t, want); l.Rounds < 3 {
		t.Errorf("%d rounds", l.Rounds)
	}
	types := []string{typeReady, typeAdvance}
	for k := overlap.Arrive; k.String() != "unknown"; k++ {
		types = append(types, k.String())
	}
	for _, e := range types {
		if !bytes.Contains(want, []byte(`{"e":"`+e+`"`)) {
			t.Errorf("no %s in the log", e)
		}
	}
}

// play lets a scheduler do a bit of everything.
func play(t *testing.T, s *Tee) {
	var round overlap.Round
	step := func(now time.Duration, e overlap.Event) {
		t.Helper()
		if err := s.Step(now, &e); err != nil {
			t.Fatal(err)
		}
	}
	ready := func(now time.Duration) {
		for more := true; more; {
			r := s.Ready(now)
			if r.Round != nil {
				round = *r.Round
			}
			more = r.Wake <= now
		}
	}
	next := func(now time.Duration, number uint64) {
		t.Helper()
		if ready(now); round.Number != number {
			t.Fatalf("no round %d at %v", number, now)
		}
	}
	finish := func(now time.Duration) {
		took := round.Predicted.Latency + ms/2
		o := models.Outcome{Round: round.Number, Took: took}
		for _, sp := range round.Group.Spans {
			o.Spans = append(o.Spans, models.SpanOutcome{Span: sp, Reached: sp.End, Took: took})
		}
		step(now, overlap.Event{Kind: overlap.Finish, Outcome: o})
	}
	arrive := func(now time.Duration, id models.QueryID, service models.ServiceID, in time.Duration) error {
		return s.Step(now, &overlap.Event{Kind: overlap.Arrive, Query: models.Query{
			ID: id, Service: service, Size: 1, SeqLen: 64 * int(service), Shape: 0xabcdef, Arrival: now, Deadline: now + in,
		}})
	}
	for id := models.QueryID(1); id <= 3; id++ {
		if err := arrive(1*ms, id, 0, 100*ms); (err != nil) != (id == 3) {
			t.Fatal(err)
		}
	}
	_ = arrive(1*ms, 4, 1, 60*ms)
	next(2*ms, 1)
	_ = arrive(3*ms, 5, 0, 200*ms)
	s.Advance(4 * ms)
	finish(18 * ms)
	next(18*ms, 2)
	_ = arrive(21*ms, 6, 1, 100*ms)
	step(22*ms, overlap.Event{Kind: overlap.Cancel, Query: models.Query{ID: 5}})
	step(22*ms, overlap.Event{Kind: overlap.Cancel, Query: models.Query{ID: 99}})
	ready(22 * ms)
	finish(29 * ms)
	next(30*ms, 3)
	finish(51 * ms)
	step(52*ms, overlap.Event{Kind: overlap.Down, Service: 1})
	_ = arrive(53*ms, 7, 1, 5*ms)
	ready(60 * ms)
	move := overlap.Move{Held: overlap.Held{Service: 1, Batch: 9, Device: 1}, To: 2, Operator: 3, Size: 4}
	if err := s.Step(60*ms, &overlap.Event{Kind: overlap.Moved, Move: move, Took: ms, Status: models.SpanLost}); !errors.Is(err, overlap.ErrUnknownRound) {
		t.Fatal(err)
	}
	step(61*ms, overlap.Event{Kind: overlap.Load, Definition: models.Service{ID: 1, Name: "bert", Operators: 12, QoSTarget: 1000 * ms, QueueLimit: 2, MaxBatch: 1}})
	step(62*ms, overlap.Event{Kind: overlap.Up, Service: 1})
	m := models.Service{ID: 2, Name: "bert", Operators: 8, QoSTarget: 50 * ms, QueueLimit: 2, MaxBatch: 1}
	step(62*ms, overlap.Event{Kind: overlap.Add, Definition: m}) // takes the place of the one before
	step(62*ms, overlap.Event{Kind: overlap.Up, Service: 2})
	m.QoSTarget = 80 * ms
	step(62*ms, overlap.Event{Kind: overlap.Change, Definition: m})
	step(62*ms, overlap.Event{Kind: overlap.Remove, Service: 1})
	if err := s.Step(62*ms, &overlap.Event{Kind: overlap.Remove, Service: 1}); !errors.Is(err, overlap.ErrUnknownService) {
		t.Fatal(err)
	}
	step(63*ms, overlap.Event{Kind: overlap.Drain})
	if err := arrive(64*ms, 8, 2, 50*ms); !errors.Is(err, overlap.ErrDraining) {
		t.Fatal(err)
	}
}

// TestEveryMethodIsKnown fails when the scheduler has a method that is neither behind the doors,
// which are recorded, nor known to change no decision.
func TestEveryMethodIsKnown(t *testing.T) {
	known := []string{
		"Step", "Ready", "Advance", // recorded
		"Check", "Ended", "Explain", "Allowed", "Idle", "Members", "Metrics", "Moving", "Paused", "Planned", "Routed", "Snapshot",
		"Unanswered", "Waiting", // look only
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
			s, err := overlap.New(c)
			var d door = s
			if err != nil {
				t.Fatal(err)
			}
			if records {
				tee, w, _ := begin(t, c, quick(), createFile)
				defer w.Close()
				s, d = tee.Scheduler, tee
			}
			run := newWorld(d, c, 7)
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
	s     door
	now   time.Duration
	id    models.QueryID
	event overlap.Event
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

func newLoad(t testing.TB, o Options, policy string) (*load, *Writer, string) {
	s, w, dir := begin(t, loadConfig(policy), o, createFile)
	l := &load{s: s, serve: [4]models.ServiceID{0, 1, 2, 3}}
	l.arrive(t, 64)
	return l, w, dir
}

func (l *load) step(t testing.TB, e overlap.Event) {
	l.event = e
	if err := l.s.Step(l.now, &l.event); err != nil {
		t.Fatal(err)
	}
}

func (l *load) arrive(t testing.TB, n int) {
	for range n {
		l.id++
		q := models.Query{ID: l.id, Service: l.serve[l.id%4], Size: 1, Arrival: l.now, Deadline: l.now + time.Hour}
		l.step(t, overlap.Event{Kind: overlap.Arrive, Query: q})
	}
}

// round runs one group, decides ahead while it runs, and lets as many queries arrive as were
// answered.
func (l *load) round(t testing.TB) {
	r := l.s.Ready(l.now)
	if r.Round == nil {
		t.Fatal("nothing to run")
	}
	l.s.Advance(l.now)
	took := r.Round.Predicted.Latency
	l.spans = l.spans[:0]
	for _, s := range r.Round.Group.Spans {
		l.spans = append(l.spans, models.SpanOutcome{Span: s, Reached: s.End, Took: took})
	}
	l.now += took
	l.step(t, overlap.Event{Kind: overlap.Finish, Outcome: models.Outcome{Round: r.Round.Number, Took: took, Spans: l.spans}})
	l.arrive(t, len(l.s.Ready(l.now).Answers))
}

func TestRecordingHardlyAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("encoding/json pools its buffers, and the race detector empties pools at random")
	}
	for _, p := range overlap.Policies() {
		l, w, _ := newLoad(t, quick(), p.Name)
		round := func() {
			l.round(t)
			w.keepUp() // a writer that is behind costs a file
		}
		for range 1000 {
			round()
		}
		if n := testing.AllocsPerRun(500, round); n > 4 { // the text of the status of each span
			t.Errorf("%s: a round allocates %v times", p.Name, n)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
