package overlap_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

const (
	healed  = 10 * time.Second       // after which a wrong estimate must have been corrected
	counted = 2 * time.Second        // for which answers are counted then
	handOff = 700 * time.Microsecond // from the end of a round to the start of the next
)

// clientLoop is clients that ask again when they are answered. The scheduler and the
// predictor are those that serve, the device and the clients are in virtual time.
type clientLoop struct {
	t         testing.TB
	services  []loopService
	s         *overlap.Scheduler
	solo      *predictor.Solo
	p         *predictor.Predictor
	random    *rand.Rand
	now       time.Duration
	asks      []clientAsk
	deadlines []time.Duration // by query
	inTime    []int           // answers, by service
}

// loopService is a service with its clients. A batch takes fixed and each for every query,
// and a part of the model its share of that and cut.
type loopService struct {
	clients          int
	think            time.Duration // at most, before a client asks again
	maxBatch         int
	target           time.Duration
	fixed, each, cut time.Duration
}

type clientAsk struct {
	at      time.Duration
	service models.ServiceID
}

func (v *loopService) takes(size int) time.Duration { return v.fixed + time.Duration(size)*v.each }

// newClientLoop returns a loop in which the smallest and the largest batch of each service
// were measured, as a worker on a CPU does.
func newClientLoop(t testing.TB, list []loopService) *clientLoop {
	c := &clientLoop{t: t, services: list, random: rand.New(rand.NewPCG(1, 2)), inTime: make([]int, len(list))}
	deployed := services(len(list), 1, time.Second)
	var err error
	if c.solo, err = predictor.NewSolo(slices.Repeat([]int{operators}, len(list))...); err != nil {
		t.Fatal(err)
	}
	c.p = predictor.New(c.solo)
	for i, v := range list {
		deployed[i].MaxBatch, deployed[i].QoSTarget = v.maxBatch, v.target
		c.believe(i, 1, v.takes(1))
		c.believe(i, v.maxBatch, v.takes(v.maxBatch))
		for range v.clients {
			c.asks = append(c.asks, clientAsk{c.think(i), models.ServiceID(i)})
		}
	}
	config := overlap.Config{Services: deployed, Policy: "overlap", Devices: []overlap.Predictor{c.p}, RoundTime: 5 * time.Millisecond}
	if c.s, err = overlap.New(config); err != nil {
		t.Fatal(err)
	}
	return c
}

// believe sets what a batch of a service is believed to take.
func (c *clientLoop) believe(service, size int, took time.Duration) {
	nanos := slices.Repeat([]int64{int64(took) / operators}, operators)
	if err := c.solo.SetOperators(models.ServiceID(service), size, 0, nanos); err != nil {
		c.t.Fatal(err)
	}
}

// think returns when a client asks next.
func (c *clientLoop) think(service int) time.Duration {
	return c.now + time.Duration(c.random.Int64N(int64(c.services[service].think)))
}

// run serves for some time, and returns how many answers were in time, by service.
func (c *clientLoop) run(long time.Duration) []int {
	clear(c.inTime)
	for until := c.now + long; c.now < until; {
		c.arrive(c.now)
		r, ok := c.s.Next(c.now)
		c.answers()
		if !ok {
			c.now = c.next()
			continue
		}
		one := c.takes(r.Group.Spans)
		took := one * time.Duration(r.Group.Spans[0].Times(len(r.Queries[0])))
		o := models.Outcome{Round: r.Number, Took: took}
		for _, span := range r.Group.Spans {
			o.Spans = append(o.Spans, models.SpanOutcome{Span: span, Reached: span.End, Took: took})
		}
		c.now += took
		c.arrive(c.now)
		if err := c.p.Observe(c.now, r.Group, one); err != nil {
			c.t.Fatal(err)
		}
		if err := c.s.Finish(c.now, o); err != nil {
			c.t.Fatal(err)
		}
		c.answers()
		c.now += handOff
	}
	return c.inTime
}

// takes returns what spans take one after another, within 5 %.
func (c *clientLoop) takes(spans []models.Span) (sum time.Duration) {
	for _, span := range spans {
		v := &c.services[span.Service]
		took := v.takes(span.Size) * time.Duration(span.Len()) / operators
		if span.Len() < operators {
			took += v.cut
		}
		sum += time.Duration(float64(took) * (0.95 + 0.1*c.random.Float64()))
	}
	return sum
}

// arrive submits what clients ask until a time.
func (c *clientLoop) arrive(until time.Duration) {
	slices.SortFunc(c.asks, func(a, b clientAsk) int { return int(a.at - b.at) })
	for len(c.asks) > 0 && c.asks[0].at <= until {
		a := c.asks[0]
		deadline := a.at + c.services[a.service].target
		c.asks, c.deadlines = c.asks[1:], append(c.deadlines, deadline)
		q := models.Query{ID: models.QueryID(len(c.deadlines)), Service: a.service, Size: 1, Arrival: a.at, Deadline: deadline}
		if err := c.s.Arrive(a.at, q); err != nil {
			c.t.Fatal(err)
		}
	}
}

// next returns when something happens while no round can run.
func (c *clientLoop) next() time.Duration {
	next := c.now + time.Second
	for _, a := range c.asks {
		next = min(next, a.at)
	}
	if at, ok := c.s.Wake(); ok {
		next = min(next, at)
	}
	return max(next, c.now+1)
}

func (c *clientLoop) answers() {
	for _, a := range c.s.Answers() {
		if a.Result == overlap.Finished && a.At <= c.deadlines[a.Query-1] {
			c.inTime[a.Service]++
		}
		c.asks = append(c.asks, clientAsk{c.think(int(a.Service)), a.Service})
	}
	c.s.Released()
}

// calibrate changes what was learned of all predictions together: the speed of the device,
// and by how much runs exceed what is predicted.
func (c *clientLoop) calibrate(level, ratio float64) {
	s := c.p.Snapshot()
	for i := range s.Sources {
		s.Sources[i].Level *= level
	}
	for _, w := range slices.Concat(s.Sources, s.Shapes) {
		for i := range w.Ratios {
			w.Ratios[i] *= ratio
		}
	}
	if err := c.p.Restore(s); err != nil {
		c.t.Fatal(err)
	}
}

// cutCosts sets what cutting a service's model is believed to cost.
func (c *clientLoop) cutCosts(service int, nanos float64) {
	s, err := c.solo.Snapshot(models.ServiceID(service))
	s.Cut = nanos
	if err == nil {
		err = c.solo.Restore(models.ServiceID(service), s)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// faults returns what may be wrong of what is learned: each value ten times what it should be,
// or a tenth of it.
func (c *clientLoop) faults() map[string]func(*clientLoop) {
	faults := map[string]func(*clientLoop){}
	for _, factor := range []float64{10, 0.1} {
		for i, v := range c.services {
			sizes := slices.DeleteFunc([]int{1, 2, 5, 7, 12, 15, 16}, func(size int) bool { return size > v.maxBatch })
			wrong := func(c *clientLoop, size int) { c.believe(i, size, time.Duration(factor*float64(v.takes(size)))) }
			for _, size := range sizes {
				faults[fmt.Sprintf("size %d of service %d times %v", size, i, factor)] = func(c *clientLoop) { wrong(c, size) }
			}
			faults[fmt.Sprintf("all sizes of service %d times %v", i, factor)] = func(c *clientLoop) {
				for _, size := range sizes {
					wrong(c, size)
				}
			}
			faults[fmt.Sprintf("cut of service %d times %v", i, factor)] = func(c *clientLoop) { c.cutCosts(i, factor*1e6) }
		}
		faults[fmt.Sprintf("level times %v", factor)] = func(c *clientLoop) { c.calibrate(factor, 1) }
		faults[fmt.Sprintf("margin times %v", factor)] = func(c *clientLoop) { c.calibrate(1, factor) }
	}
	return faults
}

// TestWrongEstimatesHeal makes one learned value after another wrong, before the first query
// and while serving. Whatever that keeps from running is tried again: 10 s later as many
// queries are answered in time as if nothing had been wrong.
func TestWrongEstimatesHeal(t *testing.T) {
	batching := loopService{clients: 16, think: time.Millisecond, maxBatch: 16, target: time.Second, fixed: 2 * time.Millisecond, each: 100 * time.Microsecond}
	but := func(change func(*loopService)) []loopService {
		v := batching
		change(&v)
		return []loopService{v}
	}
	for name, services := range map[string][]loopService{
		"sixteen at a time": {batching},
		"as they come":      but(func(v *loopService) { v.think = 20 * time.Millisecond }),
		"half a batch":      but(func(v *loopService) { v.clients = 8 }),
		"a tight target":    but(func(v *loopService) { v.target = 20 * time.Millisecond }),
		"in series":         but(func(v *loopService) { v.maxBatch = 1 }),
		"cut for another": {
			{clients: 1, think: time.Millisecond, maxBatch: 1, target: 250 * time.Millisecond, fixed: 100 * time.Millisecond, cut: 50 * time.Microsecond},
			{clients: 1, think: 20 * time.Millisecond, maxBatch: 1, target: 30 * time.Millisecond, fixed: 2 * time.Millisecond},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			well := newClientLoop(t, services)
			well.run(healed)
			want, faults := slices.Clone(well.run(counted)), well.faults()
			for _, fault := range slices.Sorted(maps.Keys(faults)) {
				for _, served := range []time.Duration{0, 2 * time.Second} {
					c := newClientLoop(t, services)
					c.run(served)
					faults[fault](c)
					c.run(healed)
					for i, got := range c.run(counted) {
						if float64(got) < 0.9*float64(want[i]) {
							t.Errorf("%s after %v: service %d answers %d queries in time, want %d", fault, served, i, got, want[i])
						}
					}
				}
			}
		})
	}
}
