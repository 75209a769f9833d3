package test

import (
	"math/rand/v2"
	"slices"
	"time"
)

// The service for images may take this much beside its weights, and its worker has no
// more than that, what it is given to share with the daemon, and what any worker has.
const (
	hungryBytes = 64 << 20
	hungryMost  = hungryBytes + 192<<20
)

// feed sends images that are far too large for the budget of their service between
// such as are not. The worker says why, lives on, and never takes more.
func (c *chaos) feed(d *disturbance) {
	refused, ran := 0, 0
	for begin := time.Now(); time.Since(begin) < d.lasts && !c.over.Load(); c.pause(d.random, 20*time.Millisecond) {
		q, check, may := meal(d.random)
		switch c.once("images", q, check, may) {
		case "ok":
			ran++
		case "too_large":
			refused++
		}
		if u, err := measure(c.p.worker("images")); err == nil && u.resident > hungryMost && !raced {
			c.ledger.fault("images: its worker has %d MiB", u.resident>>20)
		}
	}
	c.note("hungry: %d images answered, %d too large, for %v", ran, refused, d.lasts)
}

// meal returns an image, what its answer must be, and how it may be refused.
func meal(random *rand.Rand) (q query, check func(query, answer) error, may []string) {
	if random.IntN(2) == 0 {
		return image(8 + random.Int64N(300)), checkImage, workerRefusals
	}
	return image(1000 + random.Int64N(100)), never, append(slices.Clone(workerRefusals), "too_large")
}
