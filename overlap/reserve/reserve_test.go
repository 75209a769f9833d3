package reserve

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

const ms = time.Millisecond

// plain is a pool of equal devices. An operator takes 1 ms, and another one for each query after the
// first. The bound of an estimate is margin higher.
type plain struct {
	ends   []time.Duration // of the round of each device, 0 if it is idle
	down   []bool
	margin time.Duration
	asked  int
}

func (p *plain) Ends(device int) (time.Duration, bool) { return p.ends[device], p.ends[device] > 0 }

func (p *plain) Runs(_ models.ServiceID, device int) bool { return !p.down[device] }

func (p *plain) Alone(_ int, s models.Span) models.Estimate {
	p.asked++
	took := time.Duration(s.Len()*s.Size) * ms
	return models.Estimate{Latency: took, Bound: took + p.margin}
}

// pipe is a service with a pipeline of two stages of 10 operators: the first on devices 0 and 1, the
// second on device 2, with a move of 2 ms for each query.
func pipe(batch int) *Queue {
	stages := []models.Stage{{End: 10, Devices: []int{0, 1}, Move: 2 * ms}, {End: 20, Devices: []int{2}}}
	return &Queue{Service: &models.Service{MaxBatch: batch, Operators: 20, Pipelines: []models.Pipeline{{Batch: batch, Stages: stages}}}}
}

// three returns the tables of three idle devices. Devices 0 and 1 share a link.
func three(reactive bool, queues ...*Queue) (*Tables, *plain) {
	p := &plain{ends: make([]time.Duration, 3), down: make([]bool, 3)}
	t := New(p, []int{0, 0, 0}, []int{0, 0, 1}, reactive)
	t.Share(queues)
	return t, p
}

// hold makes n queries of size 1 wait that arrive at 0 and have a deadline.
func (q *Queue) hold(n int, deadline time.Duration) {
	q.Head = &models.Query{Size: 1, Deadline: deadline}
	q.Size, q.Waiting, q.Due = n, n, deadline
}

// form books and reserves a batch of a size for a queue.
func form(t *Tables, q *Queue, id models.BatchID, size int, now time.Duration) *Way {
	w := &Way{Batch: id}
	t.Book(now, q, size, w)
	w.Due = q.Due
	t.Reserve(w, w.At().Device)
	return w
}

// formed returns the tables of three idle devices with one batch of a query with a deadline.
func formed(deadline time.Duration) (*Tables, *plain, *Queue, *Way) {
	q := pipe(1)
	t, p := three(false, q)
	q.hold(1, deadline)
	t.Next(0, q)
	return t, p, q, form(t, q, 1, 1, 0)
}

// crowded returns the tables of three devices that are busy until 20 ms, and n queries that wait for a
// pipeline with batches of 4.
func crowded(n int, deadline time.Duration, others ...*Queue) (*Tables, *Queue) {
	q := pipe(4)
	t, p := three(false, append(others, q)...)
	p.ends = []time.Duration{20 * ms, 20 * ms, 20 * ms}
	q.hold(n, deadline)
	return t, q
}

// TestWay reserves two batches: the second one starts on the other device of the first stage, waits
// for the link and then for the device of the second stage.
func TestWay(t *testing.T) {
	q := pipe(1)
	x, _ := three(false, q)
	var ways []*Way
	for id, want := range [][2]leg{
		{{Device: 0, Took: 10 * ms}, {Device: 2, Depart: 10 * ms, Travel: 2 * ms, Start: 12 * ms, Took: 10 * ms}},
		{{Device: 1, Took: 10 * ms}, {Device: 2, Depart: 12 * ms, Travel: 2 * ms, Start: 22 * ms, Took: 10 * ms}},
	} {
		q.hold(1, 100*ms)
		if what, size := x.Next(0, q); what != Form || size != 1 {
			t.Fatalf("action %d of %d queries, want to form a batch of 1", what, size)
		}
		w := form(x, q, models.BatchID(id+1), 1, 0)
		ways = append(ways, w)
		for k := range want {
			want[k].Stage = q.Service.Pipelines[0].Stages[k]
			if g := w.Legs[k]; g.Device != want[k].Device || g.Depart != want[k].Depart || g.Travel != want[k].Travel || g.Start != want[k].Start || g.Took != want[k].Took {
				t.Errorf("batch %d, stage %d: got %+v, want %+v", id+1, k, g, want[k])
			}
		}
	}
	if err := x.Check(ways); err != nil {
		t.Error(err)
	}
	if later := ways[0].Later(); later != 12*ms {
		t.Errorf("after its first stage a batch takes %v, want 12ms", later)
	}
	if err := x.Check(ways[:1]); err == nil {
		t.Error("a reservation for nobody is not found")
	}
	x.Vacate(ways[1], 1)
	if err := x.Check(ways[:1]); err != nil {
		t.Error(err)
	}
}

// TestNext shows what becomes of the most urgent query, by the queries that wait and their deadline,
// while all devices are busy until 20 ms. A batch of n then ends at 20 + 22n ms.
func TestNext(t *testing.T) {
	for _, c := range []struct {
		name     string
		waiting  int
		deadline time.Duration
		what     action
		size     int
		until    time.Duration
	}{
		{"a full batch starts", 4, 200 * ms, Form, 4, never},
		{"a batch that is not full waits until it must start", 2, 200 * ms, Wait, 0, 200*ms - (20+66)*ms},
		{"a batch without time to wait starts", 2, 80 * ms, Form, 2, never},
		{"a batch is made as small as its deadline needs", 4, 70 * ms, Form, 2, never},
		{"a query that even alone is late is doubted", 1, 30 * ms, Doubt, 1, never},
	} {
		x, q := crowded(c.waiting, c.deadline)
		q.Head.Arrival = c.deadline - 60*ms // too short for a whole batch, so that nothing is spoiled
		what, size := x.Next(0, q)
		if what != c.what || size != c.size || q.Until != c.until {
			t.Errorf("%s: got action %d, size %d, until %v; want %d, %d, %v", c.name, what, size, q.Until, c.what, c.size, c.until)
		}
	}
}

// TestSpoiled drops a query that has come to wait so long that its batch would be smaller than planned.
func TestSpoiled(t *testing.T) {
	x, q := crowded(4, 100*ms)
	if what, _ := x.Next(0, q); what != Drop {
		t.Errorf("got action %d, want it to be dropped", what)
	}
}

// TestIdle starts a batch that is not full at once if its way is free.
func TestIdle(t *testing.T) {
	q := pipe(4)
	x, _ := three(false, q)
	q.hold(1, 200*ms)
	if what, size := x.Next(0, q); what != Form || size != 1 {
		t.Errorf("got action %d of %d queries, want to form a batch of 1", what, size)
	}
}

// TestOthers leaves time for a batch of a service that shares a device.
func TestOthers(t *testing.T) {
	other := pipe(1)
	other.Service.ID = 1
	x, q := crowded(2, 200*ms, other)
	if x.Next(0, q); q.Until != 200*ms-(20+66)*ms-20*ms {
		t.Errorf("it waits until %v, want 94ms", q.Until)
	}
}

// TestReroute: a batch that ends its first stage late keeps its device and makes later ones wait, and
// one whose device is down stays where it is.
func TestReroute(t *testing.T) {
	x, p, q, w := formed(100 * ms)
	x.Next(0, q)
	form(x, q, 2, 1, 0)
	x.Vacate(w, 0)
	w.Leg = 1
	x.Reroute(11*ms, w, q, 0, 10, 1, 0)
	if g := w.At(); g.Device != 2 || g.Start != 13*ms {
		t.Errorf("got %+v, want device 2 at 13ms", g)
	}
	p.down[2] = true
	x.Reroute(11*ms, w, q, 0, 10, 1, 0)
	if g := w.At(); g.Device != 0 || g.Start != 11*ms || g.Travel != 0 {
		t.Errorf("got %+v, want device 0 at 11ms", g)
	}
}

// TestLimit: others must leave a device in time for those that have reserved it.
func TestLimit(t *testing.T) {
	x, _, _, w := formed(50 * ms)
	nobody := func(*Way) bool { return false }
	for _, c := range []struct {
		device int
		soon   time.Duration
		in     func(*Way) bool
		want   time.Duration
	}{
		{0, 0, nobody, 28 * ms}, // 50 ms less 22 ms
		{2, 0, nobody, 40 * ms},
		{2, 41 * ms, nobody, never}, // it would be late in any case
		{2, 0, func(o *Way) bool { return o == w }, never},
		{1, 0, nobody, never},
	} {
		if got := x.Limit(c.device, nil, c.soon, c.in); got != c.want {
			t.Errorf("device %d from %v: got %v, want %v", c.device, c.soon, got, c.want)
		}
	}
	if w.Late = true; w.Later() != 0 || x.Limit(0, nil, 0, nobody) != never {
		t.Error("a batch that may be late must end early")
	}
}

// TestMoved learns that moves take longer than planned.
func TestMoved(t *testing.T) {
	x, _, q, w := formed(100 * ms)
	w.Leg = 1
	for range 100 {
		x.Moved(q, w, 1, 6*ms)
	}
	if took := q.travel(2*ms, 1); took < 5900*time.Microsecond || took > 6*ms {
		t.Errorf("a move of 2ms that takes 6ms is expected to take %v", took)
	}
}

// TestEstimates asks once about each stage, and again after it has run.
func TestEstimates(t *testing.T) {
	x, p, q, w := formed(100 * ms)
	if x.Next(0, q); p.asked != 2 || len(x.Estimates()) != 2 {
		t.Errorf("%d questions, %d estimates, want 2 and 2", p.asked, len(x.Estimates()))
	}
	x.Forget(w, 0, 0, 1, 0)
	restored, p2 := three(false, q)
	restored.Restore(x.Estimates())
	if restored.Next(0, q); p2.asked != 1 {
		t.Errorf("%d questions after a restore, want 1", p2.asked)
	}
}

// TestReactive: no batch is formed while no device of the first stage is free, and the second stage
// is not reserved.
func TestReactive(t *testing.T) {
	q := pipe(1)
	x, p := three(true, q)
	q.hold(1, 100*ms)
	if what, _ := x.Next(0, q); what != Form {
		t.Fatalf("got action %d, want a batch", what)
	}
	if w := form(x, q, 1, 1, 0); w.Legs[1].Device != -1 || x.Reserved(2) != 0 {
		t.Errorf("the second stage is on device %d", w.Legs[1].Device)
	}
	p.ends[1] = 10 * ms
	if what, _ := x.Next(0, q); what != Wait {
		t.Errorf("got action %d, want to wait for a device", what)
	}
}

// TestLinks: a link carries one batch out and one in at a time.
func TestLinks(t *testing.T) {
	x, _ := three(false)
	x.Occupy(0, 2, true)
	if !x.Occupied(1, 2) || x.Occupied(2, 0) {
		t.Error("the link of devices 0 and 1 must be occupied, and only outwards")
	}
	if x.Occupy(0, 2, false); x.Occupied(1, 2) {
		t.Error("the move has ended")
	}
}

// TestWayIsChecked finds ways that cannot be.
func TestWayIsChecked(t *testing.T) {
	stage := func(end, device int) leg { return leg{Stage: models.Stage{End: end}, Device: device} }
	for _, c := range []struct {
		way    Way
		moving bool
		ok     bool
	}{
		{Way{}, false, true},
		{Way{}, true, false},
		{Way{Legs: []leg{stage(10, 0), stage(20, -1)}}, false, true},
		{Way{Legs: []leg{stage(10, 0), stage(20, -1)}}, true, false},
		{Way{Legs: []leg{stage(10, 0), stage(20, 2)}, Leg: 1}, true, true},
		{Way{Legs: []leg{stage(10, 0), stage(20, 3)}, Leg: 1}, true, false},
		{Way{Legs: []leg{stage(10, 0), stage(19, 2)}}, false, false},
		{Way{Legs: []leg{stage(10, -1), stage(20, 2)}}, false, false},
		{Way{Legs: []leg{stage(20, 0)}, Leg: 1}, false, false},
	} {
		if err := c.way.Check(3, 20, c.moving); (err == nil) != c.ok {
			t.Errorf("%+v, moving %v: %v", c.way, c.moving, err)
		}
	}
}
