package journal

import (
	"bytes"
	"errors"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// learner is a predictor that says something else of the same group every
// now and then, as one does that learns. Some groups it does not know.
type learner struct {
	seed  uint64
	calls uint64
}

func (l *learner) Predict(groups []models.Group, estimates []models.Estimate) {
	l.calls++
	for i, g := range groups {
		h := fnv.New64a()
		var sum time.Duration
		for _, s := range g.Spans {
			_, _ = h.Write([]byte{byte(s.Service), byte(s.Start), byte(s.End), byte(s.Size), byte(s.Share), byte(l.calls / 64), byte(l.seed)})
			sum += time.Duration(s.Len()*(3+s.Size)) * time.Millisecond / time.Duration(4-s.Share)
		}
		if h.Sum64()%16 == 0 {
			estimates[i] = models.Estimate{}
			continue
		}
		part := time.Duration(80 + h.Sum64()%40)
		latency := max(sum*part/100*10/time.Duration(9+len(g.Spans)), 1)
		estimates[i] = models.Estimate{Latency: latency, Bound: latency * 11 / 10}
	}
}

func testConfig(policy string, services int, seed uint64) overlap.Config {
	c := overlap.Config{Policy: policy, Devices: []overlap.Predictor{&learner{seed: seed}}, MaxRetries: 1}
	for i := range services {
		c.Services = append(c.Services, models.Service{
			ID: models.ServiceID(i), Name: string(rune('a' + i)), Operators: 3 + 2*i,
			QoSTarget: time.Duration(20+10*i) * time.Millisecond, QueueLimit: 12, MaxBatch: 1 + 2*(i%3),
		})
	}
	if n := len(c.Services); seed%2 == 0 && n > 1 {
		for i := range c.Services[:2] {
			c.Services[i].Of, c.Services[i].Accuracy = "f", float64(i+1)
		}
		c.Selector = moody{}
	}
	if policy == "overlap" && seed%3 == 0 {
		c.Units, c.Alone = []int{3}, []bool{seed%2 == 0}
	}
	return c
}

// moody selects by all that it is told.
type moody struct{}

func (moody) Select(_ string, waiting int, slack time.Duration) string {
	return string(rune('a' + (waiting+int(slack))%3))
}

func testHeader() Header {
	return Header{Version: "0.0.0", Commit: "c0ffee", Device: "a test", Epoch: time.Unix(1, 0).UTC()}
}

// door is what a scheduler that records has in common with one that does not.
type door interface {
	Step(now time.Duration, e *overlap.Event) error
	Ready(now time.Duration) overlap.Ready
	Advance(now time.Duration)
}

// world drives a scheduler with what a daemon would tell it, from a seed.
type world struct {
	s        door
	rand     *rand.Rand
	services []models.Service
	now      time.Duration
	id       models.QueryID
	rounds   []overlap.Round
	down     []bool
	answers  int
}

func newWorld(s door, c overlap.Config, seed uint64) *world {
	return &world{
		s: s, rand: rand.New(rand.NewPCG(seed, 1)), services: append([]models.Service(nil), c.Services...),
		down: make([]bool, len(c.Services)),
	}
}

// step does one thing.
func (w *world) step(t testing.TB) {
	w.now += time.Duration(w.rand.IntN(3)) * time.Millisecond
	sv := models.ServiceID(w.rand.IntN(len(w.services)))
	switch n := w.rand.IntN(100); {
	case n < 40:
		w.arrive(sv)
	case n < 65:
		w.finish(t)
	case n < 70:
		_ = w.s.Step(w.now, &overlap.Event{Kind: overlap.Cancel, Query: models.Query{ID: models.QueryID(1 + w.rand.IntN(int(w.id)+2))}})
	case n < 72:
		w.down[sv] = true
		_ = w.s.Step(w.now, &overlap.Event{Kind: overlap.Down, Service: sv})
		if w.rand.IntN(2) == 0 { // with another model
			m := w.services[sv]
			m.Operators = 2 + w.rand.IntN(12)
			if w.s.Step(w.now, &overlap.Event{Kind: overlap.Load, Definition: m}) == nil {
				w.services[sv] = m
			}
		}
	case n < 74:
		w.deploy(sv)
	case n < 80:
		w.down[sv] = false
		_ = w.s.Step(w.now, &overlap.Event{Kind: overlap.Up, Service: sv})
	}
	w.next()
	if w.rand.IntN(3) > 0 {
		w.s.Advance(w.now)
	}
}

// deploy adds a service, changes one or removes it.
func (w *world) deploy(sv models.ServiceID) {
	m := w.services[sv]
	switch w.rand.IntN(4) {
	case 0:
		m.Name, m.ID = string(rune('a'+w.rand.IntN(26))), models.ServiceID(len(w.services))
		if w.s.Step(w.now, &overlap.Event{Kind: overlap.Add, Definition: m}) == nil {
			w.services, w.down = append(w.services, m), append(w.down, true)
		}
	case 1:
		m.QoSTarget, m.BestEffort = m.QoSTarget*3/2, !m.BestEffort
		if w.s.Step(w.now, &overlap.Event{Kind: overlap.Change, Definition: m}) == nil {
			w.services[sv] = m
		}
	default:
		if w.s.Step(w.now, &overlap.Event{Kind: overlap.Remove, Service: sv}) == nil && w.rand.IntN(2) == 0 {
			m.Operators = 1 + w.rand.IntN(9)
			w.services[sv] = m
			_ = w.s.Step(w.now, &overlap.Event{Kind: overlap.Add, Definition: m})
		}
	}
}

func (w *world) arrive(sv models.ServiceID) {
	w.id++
	q := models.Query{
		ID: w.id, Service: sv, Size: 1 + w.rand.IntN(2), SeqLen: 16 * w.rand.IntN(2), Shape: uint64(w.rand.IntN(2)) << 63,
		Arrival: w.now, Deadline: w.now + w.services[sv].QoSTarget*time.Duration(w.rand.IntN(5))/2,
		Priority: w.rand.IntN(2), Alone: w.rand.IntN(8) == 0,
	}
	if w.rand.IntN(50) == 0 {
		q.Service = models.ServiceID(len(w.services)) - models.ServiceID(w.rand.IntN(2))*100
	}
	_ = w.s.Step(w.now, &overlap.Event{Kind: overlap.Arrive, Query: q})
}

func (w *world) next() {
	for more := true; more; {
		r := w.s.Ready(w.now)
		if w.answers += len(r.Answers); r.Round != nil {
			w.rounds = append(w.rounds, *r.Round)
		}
		more = r.Wake <= w.now
	}
}

func (w *world) finish(t testing.TB) {
	if len(w.rounds) == 0 {
		return
	}
	first := w.rounds[0]
	o := models.Outcome{Round: first.Number, Took: first.Predicted.Latency * time.Duration(90+w.rand.IntN(20)) / 100}
	for _, s := range first.Group.Spans {
		so := models.SpanOutcome{Span: s, Reached: s.End, Took: o.Took}
		switch w.rand.IntN(20) {
		case 0:
			so.Status, so.Reached = models.SpanStopped, s.Start+w.rand.IntN(s.Len()+1)
		case 1:
			so.Status = models.SpanLost
		case 2:
			so.Status = models.SpanFailed
		case 3:
			so.Status = models.Status(9) // impossible
		}
		o.Spans = append(o.Spans, so)
	}
	w.now += o.Took
	_ = w.s.Step(w.now, &overlap.Event{Kind: overlap.Finish, Outcome: o})
	w.rounds = w.rounds[1:]
}

const (
	flushInterval = time.Millisecond // the shortest that a test asks for
	fileBytes     = 1 << 12
)

// quick are options for tests: what is recorded is in the file when the log
// is closed.
func quick() Options {
	o := DefaultOptions()
	o.FlushInterval = time.Hour
	return o
}

// keepUp waits until the writer has taken most of what is pending.
func (w *Writer) keepUp() {
	for {
		w.mu.Lock()
		n, files := w.pending(), len(w.mu.pending)
		w.mu.Unlock()
		if n <= pendingBytes/2 && files < pendingFiles {
			return
		}
		runtime.Gosched()
	}
}

// begin returns a scheduler that is recorded to a new log in a folder.
func begin(t testing.TB, c overlap.Config, o Options, create func(path string) (file, error)) (*Tee, *Writer, string) {
	t.Helper()
	dir := t.TempDir()
	w, err := open(dir, o, create)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(c, w, testHeader())
	if err != nil {
		t.Fatal(err)
	}
	return s, w, dir
}

// simulate runs steps of a random world into a new log, and returns the folder.
func simulate(t testing.TB, c overlap.Config, o Options, seed uint64, steps int) string {
	t.Helper()
	s, w, dir := begin(t, c, o, createFile)
	run := newWorld(s, c, seed)
	for range steps {
		run.step(t)
		w.keepUp()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// replayAll replays every file of a log by itself, and fails the test unless each comes out as it was. The
// newest file is the first.
func replayAll(t testing.TB, dir string) (all []*Log) {
	t.Helper()
	for f := (files{dir: dir}); ; {
		text, err := os.ReadFile(f.path(len(all)))
		if errors.Is(err, fs.ErrNotExist) && len(all) > 0 {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, replayText(t, text))
	}
}

// replayText replays a log that must come out as it was.
func replayText(t rapid.TB, text []byte) *Log {
	t.Helper()
	l, err := Replay("log", bytes.NewReader(text), goOn)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func goOn(*Log, *Record) bool { return true }

// recorded returns the text of the newest file of a log, nil if nothing happened.
func recorded(t testing.TB, c overlap.Config, seed uint64, steps int) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(simulate(t, c, quick(), seed, steps), FileName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return text
}
