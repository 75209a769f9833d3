package segments

import (
	"cmp"
	"slices"
	"time"
)

// layout is where the values of a batch lie in its memory. It holds for
// all batches whose inputs have the same shapes.
type layout struct {
	shapes  []shape // by value
	buffer  []int   // by value, its buffer, -1 if ONNX Runtime allocates it
	buffers []lifetime
	bytes   int64 // all of it together
	work    int64 // what its batches had besides at most, for operators to work in
	live    []int64
	size    int             // the size of the batch that it was made for, 0 of one that came from another worker
	used    uint64          // when it was used last, by the clock of the pool
	times   []time.Duration // by piece, the least that it has taken on a device, 0 if that is not known
}

// takes returns the least time that a piece has taken on the device, as far as that is
// known, 0 else and without a layout.
func (l *layout) takes(piece int) time.Duration {
	if l == nil || l.times == nil {
		return 0
	}
	return l.times[piece]
}

// took takes in how long the device took for some pieces together. Those that are not
// known share alike. What is known together to take more was measured with more beside
// it: waits of the host, or the work of others.
func (l *layout) took(from, to int, together time.Duration) {
	if l.times == nil {
		l.times = make([]time.Duration, len(l.live))
	}
	var sum time.Duration
	for p := from; p < to; p++ {
		if l.times[p] == 0 {
			l.times[p] = max(together/time.Duration(to-from), 1)
		}
		sum += l.times[p]
	}
	for p := from; p < to && sum > together; p++ {
		l.times[p] = max(time.Duration(float64(l.times[p])*float64(together)/float64(sum)), 1)
	}
}

// planner makes a layout.
type planner struct {
	cut *cutting
	layoutOptions
	out *layout
}

type layoutOptions struct {
	inPlace bool // an output may take the memory of an input that dies
	noReuse bool // every value has memory of its own
	far     bool // the memory is a device's
}

// deviceAlign is the alignment of every value in a device's memory, in bytes:
// what its allocations have, and what kernels may count on.
const deviceAlign = 256

// newLayout plans the memory of a batch whose values have these shapes.
// Values of the model's inputs are given only when the batch is gathered.
func newLayout(c *cutting, shapes []shape, gathered []int32, o layoutOptions) *layout {
	l := &layout{shapes: shapes, buffer: make([]int, len(shapes))}
	for id := range l.buffer {
		l.buffer[id] = -1
	}
	p := &planner{cut: c, layoutOptions: o, out: l}
	for _, id := range gathered {
		p.give(id, 0)
	}
	for step := range c.pieces {
		for _, id := range c.pieces[step].outputs {
			if shapes[id].known && !p.share(id, step) {
				p.give(id, step)
			}
		}
	}
	l.bytes = place(l.buffers)
	l.live = liveBytes(c, shapes)
	return l
}

// give makes a buffer for the value.
func (p *planner) give(id int32, step int) {
	last := max(step, p.cut.lastAt[id])
	if p.noReuse {
		last = len(p.cut.pieces)
	}
	bytes := p.out.shapes[id].bytes
	if p.far {
		bytes = (max(bytes, 1) + deviceAlign - 1) &^ (deviceAlign - 1)
	}
	p.out.buffer[id] = len(p.out.buffers)
	p.out.buffers = append(p.out.buffers, lifetime{bytes: bytes, first: step, last: last})
}

// share puts the value into the buffer of an input of its operator, if that
// is allowed.
func (p *planner) share(id int32, step int) bool {
	pc := &p.cut.pieces[step]
	if !p.inPlace || p.noReuse || len(pc.outputs) != 1 {
		return false
	}
	r, in := pc.reuse, pc.nodeInputs
	if p.far && !r.view {
		return false // no kernel of a device copies there what is not shared
	}
	for _, pos := range r.inputs {
		if pos >= len(in) || in[pos] < 0 {
			continue
		}
		b := p.out.buffer[in[pos]]
		if b < 0 || p.out.shapes[in[pos]].bytes != p.out.shapes[id].bytes {
			continue
		}
		if !r.view && !p.mayOverwrite(b, pos, in, step) {
			continue
		}
		p.out.buffer[id] = b
		p.out.buffers[b].last = max(p.out.buffers[b].last, p.cut.lastAt[id], step)
		return true
	}
	return false
}

// mayOverwrite reports whether the buffer of input pos holds nothing, under
// whatever name, that is needed after this step or by another input of it.
func (p *planner) mayOverwrite(b, pos int, in []int32, step int) bool {
	if p.out.buffers[b].last > step {
		return false
	}
	for i, id := range in {
		if i != pos && id >= 0 && p.out.buffer[id] == b {
			return false
		}
	}
	return true
}

// liveBytes returns, for every operator, the bytes of intermediates alive
// after it, outputs of the model included, each value counted once.
func liveBytes(c *cutting, shapes []shape) []int64 {
	live := make([]int64, len(c.pieces))
	var alive int64
	dies := make([]int64, len(c.pieces)+1)
	for p := range c.pieces {
		for _, id := range c.pieces[p].outputs {
			if last := c.lastAt[id]; last > p {
				alive += shapes[id].bytes
				dies[last] += shapes[id].bytes
			}
		}
		alive -= dies[p]
		live[p] = alive
	}
	return live
}

// tensorAlign is the alignment of every intermediate, in bytes: a cache line,
// and what the widest vector instructions want.
const tensorAlign = 64

// lifetime is a buffer that is needed from step first to step last, both
// included.
type lifetime struct {
	bytes       int64
	first, last int
	offset      int64 // set by place
}

// place gives every buffer an offset so that no two that live at the same
// time overlap, and returns how many bytes that takes. The largest come first, each
// at the lowest offset where nothing lies that lives at the same time.
func place(buffers []lifetime) int64 {
	order := make([]int, len(buffers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(buffers[b].bytes, buffers[a].bytes) })
	var total int64
	var placed []int // sorted by offset
	for _, i := range order {
		b := &buffers[i]
		b.offset = 0
		for _, j := range placed {
			other := &buffers[j]
			if other.last < b.first || b.last < other.first {
				continue
			}
			if b.offset+aligned(b.bytes) <= other.offset {
				break
			}
			b.offset = max(b.offset, other.offset+aligned(other.bytes))
		}
		pos, _ := slices.BinarySearchFunc(placed, b.offset, func(j int, at int64) int { return cmp.Compare(buffers[j].offset, at) })
		placed = slices.Insert(placed, pos, i)
		total = max(total, b.offset+aligned(b.bytes))
	}
	return total
}

func aligned(bytes int64) int64 {
	return max(tensorAlign, (bytes+tensorAlign-1)&^(tensorAlign-1))
}
