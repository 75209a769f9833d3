package test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// poisons are queries that harm the service for integers, by what they do to it, with
// the reasons that each may be answered with 500 for. Who else asks the service is
// never answered so.
var poisons = map[string]struct {
	query   func(random *rand.Rand) query
	reasons []string
}{
	"a bad query":    {func(*rand.Rand) query { return bad() }, []string{"model_failed"}},
	"a deadly query": {func(random *rand.Rand) query { return deadly(1 + random.IntN(4)) }, []string{"worker_lost", "quarantined"}},
	"another deadly query each time": {
		func(random *rand.Rand) query { return deadly(1 + random.IntN(1<<30)) }, []string{"worker_lost"},
	},
}

// Who poisons asks again after this long, on several connections.
const (
	poisoners   = 3
	poisonPause = 60 * time.Millisecond
)

func (c *chaos) poisonBad(d *disturbance)    { c.poison(d, "a bad query") }
func (c *chaos) poisonDeadly(d *disturbance) { c.poison(d, "a deadly query") }
func (c *chaos) poisonEach(d *disturbance)   { c.poison(d, "another deadly query each time") }

// poison mixes queries that do harm with those of others.
func (c *chaos) poison(d *disturbance, what string) {
	kind := poisons[what]
	var clients sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for i := range poisoners {
		random := rand.New(rand.NewPCG(d.random.Uint64(), uint64(i)))
		clients.Go(func() {
			for begin := time.Now(); time.Since(begin) < d.lasts && !c.over.Load(); c.pause(random, poisonPause) {
				client := httpCaller{address: c.p.address, binary: true}
				a := client.ask("fragile", kind.query(random))
				client.close()
				how := a.Reason
				switch {
				case c.notTaken(a):
					how = "no connection"
				case a.Status == 500 && slices.Contains(kind.reasons, a.Reason), a.Status == 503 && slices.Contains(workerRefusals, a.Reason):
				default:
					c.ledger.fault("%s: %v", what, a)
				}
				c.ledger.end("poison", how)
				mu.Lock()
				answers[how]++
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	c.note("poison: %s, for %v: %s", what, d.lasts, fmt.Sprint(answers))
}
