package test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// kind is a sort of disturbance.
type kind struct {
	name        string
	every       time.Duration // on average
	least, most time.Duration // how long one lasts
	do          func(c *chaos, d *disturbance)
}

// kinds are all disturbances. Each happens at least once in a run.
var kinds = []kind{
	{"kill", 3 * time.Second, 0, 0, (*chaos).kill},
	{"stop", 20 * time.Second, 100 * time.Millisecond, 2500 * time.Millisecond, (*chaos).stop},
	{"disk", 30 * time.Second, time.Second, 5 * time.Second, (*chaos).fillDisk},
	{"descriptors", 30 * time.Second, time.Second, 4 * time.Second, (*chaos).exhaustDescriptors},
	{"connections", 40 * time.Second, time.Second, 3 * time.Second, (*chaos).flood},
	{"hoard", 40 * time.Second, time.Second, 3 * time.Second, (*chaos).hoard},
	{"clock", 15 * time.Second, time.Second, 5 * time.Second, (*chaos).stepClock},
	{"corrupt", 40 * time.Second, 0, 0, (*chaos).corrupt},
	{"overload", 30 * time.Second, 2 * time.Second, 6 * time.Second, (*chaos).overload},
	{"endless", 25 * time.Second, time.Second, 4 * time.Second, (*chaos).runOn},
	{"bad", 12 * time.Second, time.Second, 5 * time.Second, poison("a bad query")},
	{"deadly", 20 * time.Second, time.Second, 3 * time.Second, poison("a deadly query")},
	{"poison", 30 * time.Second, time.Second, 2 * time.Second, poison("deadly queries, no two alike")},
	{"hungry", 15 * time.Second, time.Second, 3 * time.Second, (*chaos).feed},
	{"reload", 8 * time.Second, 0, 0, (*chaos).reload},
	{"rare", 40 * time.Second, 10 * time.Second, 15 * time.Second, poison("a bad query in a hundred")},
	{"halves", 30 * time.Second, 2 * time.Second, 6 * time.Second, (*chaos).halves},
	{"resets", 30 * time.Second, 2 * time.Second, 5 * time.Second, (*chaos).resets},
	{"pages", 30 * time.Second, 2 * time.Second, 5 * time.Second, (*chaos).pages},
	{"freeze", 40 * time.Second, 0, 0, (*chaos).freeze},
}

// disturbance is one of them at its time.
type disturbance struct {
	kind
	at, lasts time.Duration // from the beginning, and how long
	random    *rand.Rand
}

func (d *disturbance) String() string {
	return fmt.Sprintf("%7.3fs %-11s for %v", d.at.Seconds(), d.name, d.lasts)
}

// plan returns what disturbs a run of that length, by time. The same seed
// gives the same plan. Disturbances of different kinds overlap, those of one
// kind do not.
func plan(seed uint64, length time.Duration) (all []*disturbance) {
	for number, k := range kinds {
		random := rand.New(rand.NewPCG(seed, uint64(number)))
		n := max(int(length/k.every), 1)
		slot := length / time.Duration(n)
		for i := range n {
			lasts := k.least
			if k.most > k.least {
				lasts += time.Duration(random.Int64N(int64(k.most - k.least)))
			}
			lasts = min(lasts, slot/2)
			at := time.Duration(i)*slot + time.Duration(random.Int64N(int64(max(slot-lasts, 1))))
			all = append(all, &disturbance{k, at, lasts, rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))})
		}
	}
	slices.SortFunc(all, func(a, b *disturbance) int { return int(a.at - b.at) })
	return all
}
