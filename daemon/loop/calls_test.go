package loop

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
)

// A lost worker is known to be lost by its span's outcome, before its event.
func TestLoopRunsAgainWhatWasLost(t *testing.T) {
	b, f := startLoop(t, 1, nil)
	c := mustSubmit(t, b, 0)
	f.Await()
	f.Hold()
	f.Kill(0)
	b.Ask(func() {})
	if f.End(models.SpanDone) {
		t.Error("a round was sent to a service whose worker is lost")
	}
	f.LetGo()
	f.Revive(0, fakeworkers.Operators)
	f.Await()
	f.End(models.SpanDone)
	isServed(t, b, c)
}

// An outcome that comes late, with the next worker ready by then, does not
// take that one down; whatever came late, the service goes on.
func TestLoopIsNotMisledByALateOutcome(t *testing.T) {
	for _, operators := range []int{fakeworkers.Operators, fakeworkers.Operators + 1, fakeworkers.Operators - 1} {
		b, f := startLoop(t, 1, nil)
		c := mustSubmit(t, b, 0)
		f.Await()
		f.Hold()
		b.Ask(func() { // the loop is busy while all of this happens
			f.Kill(0)
			f.Revive(0, operators)
			for _, e := range f.Taken() {
				b.Event(0, e)
			}
		})
		f.Await()
		f.End(models.SpanDone)
		if err := answerOf(t, b, c); err != nil {
			t.Errorf("%d operators: %v", operators, err)
		}
		c = mustSubmit(t, b, 0)
		f.Await()
		f.End(models.SpanDone)
		if err := answerOf(t, b, c); err != nil {
			t.Errorf("%d operators, the next query: %v", operators, err)
		}
		if b.NotReady() != nil {
			t.Errorf("%d operators: not ready", operators)
		}
	}
}

// However late a call comes, it is refused or answered.
func TestLoopAnswersCallsThatComeAtTheEnd(t *testing.T) {
	for range 50 {
		b, _ := startLoop(t, 1, nil)
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				for range 20 {
					if c, err := submit(t, b, 0, 0); err == nil {
						wantError(t, answerOf(t, b, c), 503, "draining")
					}
				}
			})
		}
		clients.Go(func() { b.Close() })
		clients.Wait()
		if t.Failed() {
			return
		}
	}
}

// Whatever happens to workers and clients in whatever order, every call gets
// one answer, its own, and no memory is left.
func TestLoopUnderRandomEvents(t *testing.T) {
	const services, clients, each = 3, 8, 60
	for seed := range uint64(4) {
		b, f := startLoop(t, services, func(c *config.Config) {
			for i := range c.Services {
				c.Services[i].MaxBatch, c.Services[i].QueueLimit = 4, 5
			}
		})
		over := make(chan struct{})
		var chaos sync.WaitGroup
		chaos.Go(func() {
			random := rand.New(rand.NewPCG(seed, 1))
			for {
				select {
				case <-over:
					return
				case <-time.After(time.Duration(random.IntN(100)) * time.Microsecond):
				}
				switch service := random.IntN(services); random.IntN(12) {
				case 0:
					f.Kill(service)
				case 1, 2:
					f.Revive(service, 1+random.IntN(3))
				case 3:
					f.End(models.SpanFailed)
				default:
					f.End(models.SpanDone)
				}
			}
		})
		var all sync.WaitGroup
		for client := range clients {
			all.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(100+client)))
				for range each {
					timeout := time.Duration(1+random.IntN(20)) * time.Millisecond
					c, err := submit(t, b, random.IntN(services), timeout)
					if err != nil {
						t.Error(err)
						continue
					}
					if random.IntN(4) == 0 {
						time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
						c.Service.Backend.Cancel(c)
					}
					answerOf(t, b, c)
				}
			})
		}
		all.Wait()
		close(over)
		chaos.Wait()
	}
}

// over returns the queries that are over, once the loop has handled all that it
// was told.
func over(t *testing.T, b *rig) []timeline.Query {
	t.Helper()
	b.Ask(func() {})
	return b.Timeline().ReadQueries(0).Queries
}

// Each query that ends is remembered, whatever becomes of it.
func TestQueriesThatEnd(t *testing.T) {
	b, f := startLoop(t, 1, func(c *config.Config) { c.Services[0].QueueLimit = 1 })
	c := mustSubmit(t, b, 0)
	f.Await()
	waiting := mustSubmit(t, b, 0)
	refused := mustSubmit(t, b, 0)
	wantError(t, answerOf(t, b, refused), http.StatusServiceUnavailable, query.ReasonQueueFull)
	f.End(models.SpanDone)
	isServed(t, b, c)
	f.Await()
	f.End(models.SpanFailed)
	answerOf(t, b, waiting)
	list := over(t, b)
	if len(list) != 3 {
		t.Fatalf("%+v", list)
	}
	for i, want := range []struct {
		result, reason string
		ran            bool
	}{{"refused", "queue_full", false}, {"finished", "", true}, {"failed", "model_failed", true}} {
		q := list[i]
		if q.Result != want.result || q.Reason != want.reason || (q.Batch != 0) != want.ran || (q.Started > 0) != want.ran ||
			q.Service != "s0" || q.Size != 1 || q.End < q.Arrival || q.Deadline-q.Arrival != b.Services()[0].QoSTarget {
			t.Errorf("query %d: %+v", i, q)
		}
		if want.ran && (q.Started < q.Arrival || q.Started > q.End) {
			t.Errorf("query %d started out of its time: %+v", i, q)
		}
	}
}
