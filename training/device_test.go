package training

import (
	"errors"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

var errBroken = errors.New("it does not fit into memory")

// device runs the steps of sessions and checks each of them.
type device struct {
	t        rapid.TB
	s        *Session
	subjects []subject
	warm     map[input]bool
	batches  map[models.BatchID]bool
	slower   float64                                // factor of all times
	noise    func() float64                         // factor of one time
	clock    func(took time.Duration) time.Duration // of the device
	broken   map[input]bool                         // fails whenever it runs
	flaky    func() bool                            // whether this step fails
	rows     []Row                                  // measured
	times    map[string][]OperatorTimes
	kinds    map[string]int // steps given
	steps    int
}

func newDevice(t rapid.TB, o sessionOptions, stored *Dataset, operators map[string][]OperatorTimes) *device {
	t.Helper()
	return &device{t: t, s: NewSession(o, stored, operators), subjects: o.Subjects, warm: map[input]bool{}, batches: map[models.BatchID]bool{}, slower: 1,
		noise: func() float64 { return 1 }, clock: func(time.Duration) time.Duration { return 0 }, broken: map[input]bool{}, flaky: func() bool { return false },
		times: map[string][]OperatorTimes{}, kinds: map[string]int{}}
}

// resume gives the device what an earlier session measured.
func (d *device) resume(stored *Dataset, operators map[string][]OperatorTimes) {
	if stored != nil {
		d.rows = append(d.rows, stored.Rows...)
	}
	for model, times := range operators {
		d.times[model] = append(d.times[model], times...)
	}
}

// maxTestSteps bounds a session in tests: one that does not end must fail.
const maxTestSteps = 200_000

// run drives the session until it ends, or for n steps.
func (d *device) run(n int) {
	d.t.Helper()
	for range n {
		step, ok := d.s.Next()
		if !ok {
			return
		}
		if again, _ := d.s.Next(); cmp.Diff(step, again) != "" {
			d.t.Fatalf("the step changed before it was answered")
		}
		if d.steps++; d.steps > maxTestSteps {
			d.t.Fatalf("the session does not end")
		}
		d.check(step)
		d.execute(step)
	}
}

// check holds a step to what Step says of it.
func (d *device) check(step Step) {
	d.t.Helper()
	prepared := map[models.BatchID]models.Span{}
	for _, p := range step.Prepare.Spans {
		prepared[p.Batch] = p
	}
	paused := map[models.BatchID]bool{}
	for _, p := range step.Paused {
		paused[p.Batch] = true
	}
	for i, s := range step.Group.Spans {
		n := d.subjects[s.Service].Model.Operators
		if s.Start < 0 || s.Start >= s.End || s.End > n || i > 0 && step.Group.Spans[i-1].Service >= s.Service {
			d.t.Fatalf("no group: %+v", step.Group)
		}
		if d.batches[s.Batch] {
			d.t.Fatalf("batch %d was in a step before", s.Batch)
		}
		d.batches[s.Batch] = true
		before := s
		before.Start, before.End = 0, s.Start
		if p, ok := prepared[s.Batch]; ok != (s.Start > 0) || ok && p != before {
			d.t.Fatalf("%+v is prepared by %+v", s, p)
		}
		if paused[s.Batch] != (s.End < n) {
			d.t.Fatalf("%+v of %d operators is paused: %t", s, n, paused[s.Batch])
		}
		if whole := len(step.Group.Spans) == 1 && s.Start == 0 && s.End == n; (step.Warmup || step.Operators) && !whole {
			d.t.Fatalf("a whole model must run: %+v", step)
		}
		if step.Warmup == d.warm[inputOf(s)] {
			d.t.Fatalf("%+v: warm before %t, a warm-up %t", s, d.warm[inputOf(s)], step.Warmup)
		}
	}
}

// solo is how long a span takes alone.
func (d *device) solo(s models.Span) time.Duration {
	us := 10 * float64(s.Len()*s.Size*(s.SeqLen+1)) * d.slower * d.noise()
	return time.Duration(us * float64(time.Microsecond))
}

func (d *device) execute(step Step) {
	var took, spent time.Duration
	for _, s := range step.Prepare.Spans {
		spent += d.solo(s)
	}
	for _, s := range step.Group.Spans {
		took += d.solo(s)
		if d.broken[inputOf(s)] {
			d.fail(s.Service, spent)
			return
		}
	}
	if d.flaky() {
		d.fail(-1, spent)
		return
	}
	spent += took
	span := step.Group.Spans[0]
	switch {
	case step.Warmup:
		d.warm[inputOf(span)] = true
		d.kinds["warm-up"]++
		took *= 100
	case step.Reference:
		d.kinds["reference"]++
	case step.Operators:
		d.kinds["operators"]++
		d.operators(span, spent)
		return
	default:
		d.kinds["group"]++
	}
	if row, ok := d.s.Took(took, d.clock(took), spent); ok {
		d.rows = append(d.rows, row)
	}
}

func (d *device) operators(span models.Span, spent time.Duration) {
	times := make([]time.Duration, span.End)
	for i := range times {
		one := span
		one.Start, one.End = i, i+1
		times[i] = d.solo(one)
	}
	if m, o, ok := d.s.TookOperators(times, spent); ok {
		d.times[m.Name] = append(d.times[m.Name], o)
	}
}

func (d *device) fail(model models.ServiceID, spent time.Duration) {
	step, _ := d.s.Next()
	for _, s := range step.Group.Spans {
		if model < 0 || s.Service == model {
			for in := range d.warm {
				if in.model == int(s.Service) {
					delete(d.warm, in)
				}
			}
		}
	}
	d.kinds["failure"]++
	d.s.Failed(model, errBroken, spent)
}

func (d *device) dataset() *Dataset { return &Dataset{Models: d.s.Models(), Rows: d.rows} }
