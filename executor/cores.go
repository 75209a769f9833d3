package executor

import "sync"

// cores is which of the cores of a device runs have that are on a share of it.
type cores struct {
	mu    sync.Mutex
	taken uint64 // a bit for each position in wire.LoadSpec.Cores
}

// take takes so many cores of those that there are, and returns their bits. It returns 0 if not as many
// are free: the run then goes where the system lets it.
func (c *cores) take(share, all int) (on uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 0; i < min(all, 64) && share > 0; i++ {
		if bit := uint64(1) << i; c.taken&bit == 0 {
			on |= bit
			share--
		}
	}
	if share > 0 {
		return 0
	}
	c.taken |= on
	return on
}

// give gives cores back.
func (c *cores) give(on uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken &^= on
}
