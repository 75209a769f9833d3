package sim

import (
	"cmp"
	"container/heap"
)

// central is the queries that wait for a free device, the earliest deadline
// first.
type central struct {
	w     *world
	items []int
	aside []int // memory of take
}

func (c *central) Len() int { return len(c.items) }

func (c *central) Less(i, j int) bool {
	a, b := c.items[i], c.items[j]
	return cmp.Or(cmp.Compare(c.w.due(&c.w.submitted[a]), c.w.due(&c.w.submitted[b])), cmp.Compare(a, b)) < 0
}

func (c *central) Swap(i, j int) { c.items[i], c.items[j] = c.items[j], c.items[i] }

func (c *central) Push(x any) { c.items = append(c.items, x.(int)) }

func (c *central) Pop() any {
	last := len(c.items) - 1
	x := c.items[last]
	c.items = c.items[:last]
	return x
}

func (c *central) add(number int) { heap.Push(c, number) }

// take takes out the first query that a device can run, or that is too late for
// any. Those for workers that the device has lost are left to others.
func (c *central) take(n *node) (number int, ok bool) {
	c.aside = c.aside[:0]
	for !ok && len(c.items) > 0 {
		number = heap.Pop(c).(int)
		q := &c.w.submitted[number]
		switch {
		case c.w.place[number] == answered:
		case n.down[q.Service] && c.w.due(q) > c.w.now:
			c.aside = append(c.aside, number)
		default:
			ok = true
		}
	}
	for _, a := range c.aside {
		c.add(a)
	}
	return number, ok
}

// feed gives queries to the devices that run nothing. One that a device does
// not start, because it might end late, waits there and does not keep the
// device from the others.
func (w *world) feed() error {
	for _, n := range w.nodes {
		for !n.running {
			number, ok := w.central.take(n)
			if !ok {
				break
			}
			n.arrive(number)
			if err := n.decide(); err != nil {
				return err
			}
		}
	}
	return nil
}
