package overlap

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// flow is a scheduler whose service has pipelines over many devices. Rounds and moves take
// what is predicted.
type flow struct {
	testing.TB
	s     *Scheduler
	rand  *rand.Rand
	now   time.Duration
	gap   time.Duration // between two queries, in the middle
	next  time.Duration // arrival
	id    models.QueryID
	ends  []time.Duration // of the round of each device, forever if it is free
	outs  []models.Outcome
	moves []underWay
	stop  time.Duration // no query comes from then on

	target time.Duration
	links  []int
	free   [2][]time.Duration // when each link is, out and in

	batches, late, ended int
	serving, all         time.Duration // that the scheduler took
}

type underWay struct {
	Move
	from, until time.Duration
}

const flowTarget = 100 * time.Millisecond

// classed predicts two classes of devices, of which the second takes twice as long.
type classed struct{ factor time.Duration }

func (c *classed) Predict(groups []models.Group, estimates []models.Estimate) {
	for i, g := range groups {
		took := time.Duration(0)
		for _, s := range g.Spans {
			took += c.factor * time.Duration(s.Len()) * time.Duration(4+s.Size) * 100 * time.Microsecond
		}
		estimates[i] = models.Estimate{Latency: took, Bound: took}
	}
}

// newFlow returns one whose load is a part of what its pipelines bear.
func newFlow(t testing.TB, p policy, devices int, load float64) *flow {
	fast, slow := &classed{1}, &classed{2}
	c := Config{MaxRetries: 1, Services: []models.Service{{
		Name: "a", Operators: 10, QoSTarget: flowTarget, QueueLimit: 1 << 12, MaxBatch: 8,
	}}}
	of := func(from, to int) (list []int) {
		for d := from * devices / 20; d < to*devices/20; d++ {
			list = append(list, d)
		}
		return list
	}
	for d := range devices {
		c.Links = append(c.Links, d/4)
		if d < devices/2 {
			c.Devices = append(c.Devices, fast)
		} else {
			c.Devices = append(c.Devices, slow)
		}
	}
	// Devices in proportion to what the stages take.
	const move = 50 * time.Microsecond
	c.Services[0].Pipelines = []models.Pipeline{
		{Batch: 8, Stages: []models.Stage{{End: 4, Devices: of(0, 4), Move: move}, {End: 6, Devices: of(10, 14), Move: move}, {End: 10, Devices: of(4, 8)}}},
		{Batch: 4, Stages: []models.Stage{{End: 5, Devices: of(14, 20), Move: move}, {End: 10, Devices: of(8, 10)}}},
	}
	c.Services[0].Pipelines = append(c.Services[0].Pipelines, models.Pipeline{Batch: 2, Stages: []models.Stage{{End: 8, Devices: of(14, 20), Move: move}, {End: 10, Devices: of(8, 10)}}})
	f := &flow{TB: t, s: newScheduler(c, p), rand: rand.New(rand.NewPCG(1, 2)), ends: slices.Repeat([]time.Duration{forever}, devices), stop: forever}
	if err := c.ruleFaults(); len(err) > 1 {
		t.Fatal(err)
	}
	f.connect(c.Links)
	f.target = flowTarget
	f.outs = make([]models.Outcome, devices)
	f.gap = time.Duration(float64(time.Millisecond) * 100 / float64(devices) / 10.5 / load)
	return f
}

// connect has devices share links.
func (f *flow) connect(links []int) {
	f.links = links
	for i := range f.free {
		f.free[i] = make([]time.Duration, 1+slices.Max(links))
	}
}

// step goes on to the next event.
func (f *flow) step() {
	at := f.next
	for _, end := range f.ends {
		at = min(at, end)
	}
	for i := range f.moves {
		at = min(at, f.moves[i].until)
	}
	if wake, ok := f.s.backlog.wake(); ok {
		at = min(at, wake)
	}
	if at == forever {
		f.Fatalf("at %v nothing more happens", f.now)
	}
	f.now = max(f.now, at)
	began := time.Now()
	f.events()
	f.s.backlog.clock(f.now)
	f.s.expire()
	if at, ok := f.s.backlog.routes.alarm(); ok && at <= f.now { // to read the clock takes as long as to look
		served := time.Now()
		f.s.backlog.routes.serve()
		f.serving += time.Since(served)
	}
	f.rounds()
	f.all += time.Since(began)
}

func (f *flow) events() {
	for d, end := range f.ends {
		if end <= f.now {
			f.ends[d] = forever
			if err := f.s.finish(f.now, f.outs[d]); err != nil {
				f.Fatal(err)
			}
		}
	}
	for i := 0; i < len(f.moves); i++ {
		if m := f.moves[i]; m.until <= f.now {
			f.moves = slices.Delete(f.moves, i, i+1)
			i--
			if err := f.s.backlog.routes.moved(f.now, m.Move, m.until-m.from, models.SpanDone); err != nil {
				f.Fatal(err)
			}
		}
	}
	if f.next <= f.now {
		f.id++
		q := models.Query{ID: f.id, Size: 1, Arrival: f.now, Deadline: f.now + f.target}
		if err := f.s.arrive(f.now, q); err != nil {
			f.Fatal(err)
		}
		if f.next += time.Duration(f.rand.ExpFloat64() * float64(f.gap)); f.next >= f.stop {
			f.next = forever
		}
	}
}

func (f *flow) rounds() {
	for {
		r, ok := f.s.next(f.now)
		if !ok {
			break
		}
		o := &f.outs[r.Device]
		o.Round, o.Device, o.Took, o.Spans = r.Number, r.Device, r.Predicted.Latency, o.Spans[:0]
		for _, s := range r.Spans {
			o.Spans = append(o.Spans, models.SpanOutcome{Span: s, Reached: s.End, Took: o.Took})
			if s.Start == 0 {
				f.batches++
			}
		}
		f.ends[r.Device] = f.now + o.Took
	}
	for _, m := range f.s.backlog.moves.take() {
		f.moves = append(f.moves, underWay{m, f.now, forever})
	}
	f.carry()
	for _, a := range f.s.backlog.answers.take() {
		f.ended++
		if a.Result != Finished || a.At-a.Started+a.Queue > f.target {
			f.late++
		}
	}
	f.s.backlog.released.take()
}

// takes returns how long a move takes.
func (f *flow) takes(m *Move) time.Duration {
	for _, p := range f.s.backlog.services[0].Pipelines {
		for _, g := range p.Stages {
			if g.End == m.Operator {
				return g.Move * time.Duration(m.Size)
			}
		}
	}
	return 0
}

// carry begins the moves whose links are free. Those that the scheduler keeps apart find
// them so.
func (f *flow) carry() {
	for i := range f.moves {
		m := &f.moves[i]
		out, in := &f.free[0][f.links[m.Device]], &f.free[1][f.links[m.To]]
		if m.until == forever && *out <= f.now && *in <= f.now {
			m.until = f.now + f.takes(&m.Move)
			*out, *in = m.until, m.until
		}
	}
}

// Dispatching batches of pipelines does not allocate.
func TestDispatchDoesNotAllocate(t *testing.T) {
	for _, p := range []policy{edf{}, overlap{}, reactive{}} {
		f := newFlow(t, p, 20, 0.9)
		for range 20_000 {
			f.step()
		}
		if n := testing.AllocsPerRun(5000, f.step); n != 0 {
			t.Errorf("%T: an event allocates %v times", p, n)
		}
		if err := f.s.Check(); err != nil {
			t.Error(err)
		}
	}
}

// When all is answered nothing is reserved, and as predictions hold nobody is late who was
// not dropped.
func TestFlowEnds(t *testing.T) {
	for _, p := range []policy{edf{}, overlap{}, fcfs{}, reactive{}} {
		f := newFlow(t, p, 20, 0.9)
		for f.stop = time.Second; !f.s.Idle() || f.next < forever; {
			f.step()
			if err := f.s.Check(); err != nil {
				t.Fatal(err)
			}
		}
		if f.ended != int(f.id) || f.late > f.ended/10 {
			t.Errorf("%T: of %d queries %d are answered, %d too late or dropped", p, f.id, f.ended, f.late)
		}
		for _, v := range f.s.backlog.host.devices {
			if f.s.backlog.routes.tables.Reserved(v.index) > 0 {
				t.Errorf("%T: device %d is reserved", p, v.index)
			}
		}
	}
}

// Where more comes than there is time for, batches stay whole, and the devices answer as
// much as they can: batches that are made as small as the oldest query needs would keep the
// service behind.
func TestOverloadKeepsBatchesWhole(t *testing.T) {
	f := newFlow(t, edf{}, 20, 1)
	c := f.s.backlog.services[0].Service
	c.Pipelines = c.Pipelines[:1] // with batches of 8
	if err := f.s.change(0, c); err != nil {
		t.Fatal(err)
	}
	f.gap /= 4
	for f.stop = 2 * time.Second; !f.s.Idle() || f.next < forever; {
		f.step()
	}
	if whole := float64(f.s.Metrics().Services[0].Finished) / float64(f.batches); whole < 7 {
		t.Errorf("a batch has %.1f queries, %d of %d are lost", whole, f.late, f.ended)
	}
}
