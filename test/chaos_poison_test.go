package test

import (
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
	pause   time.Duration // of each connection that poisons, on average
	reasons []string

	// served is whether others must get answers meanwhile. Deadly queries that all differ may
	// keep them from that today, because the quarantine knows equal inputs only. Set it for
	// them once it knows more, and look at the workers that they end.
	served bool
}{
	"a bad query":                  {badQuery, poisonPause, []string{"model_failed"}, false},
	"a bad query in a hundred":     {badQuery, poisonRare, []string{"model_failed"}, true},
	"a deadly query":               {func(random *rand.Rand) query { return deadly(1 + random.IntN(4)) }, poisonPause, []string{"worker_lost", "quarantined"}, false},
	"deadly queries, no two alike": {func(random *rand.Rand) query { return deadly(1 + random.IntN(1<<30)) }, poisonPause, []string{"worker_lost", "quarantined"}, false},
}

func badQuery(*rand.Rand) query { return bad() }

// Who poisons asks again after this long, on several connections.
const (
	poisoners   = 3
	poisonPause = 60 * time.Millisecond
	poisonRare  = 2 * time.Second
)

// poison returns a disturbance that mixes queries which do harm with those of others.
func poison(what string) func(*chaos, *disturbance) {
	kind := poisons[what]
	may := slices.Concat(kind.reasons, workerRefusals)
	return func(c *chaos, d *disturbance) {
		before := c.ledger.count("fragile", "ok")
		var clients sync.WaitGroup
		var mu sync.Mutex
		answers := map[string]int{}
		for i := range poisoners {
			random := rand.New(rand.NewPCG(d.random.Uint64(), uint64(i)))
			clients.Go(func() {
				for begin := time.Now(); time.Since(begin) < d.lasts && !c.over.Load(); c.pause(random, kind.pause) {
					how := c.once("fragile", kind.query(random), never, may)
					mu.Lock()
					answers[how]++
					mu.Unlock()
				}
			})
		}
		clients.Wait()
		others := c.ledger.count("fragile", "ok") - before
		c.note("poison: %s, for %v: %v, and %d answers to others", what, d.lasts, answers, others)
		if kind.served && others == 0 {
			c.ledger.fault("%s keeps all others from being answered", what)
		}
	}
}
