package segments

import (
	"cmp"
	"slices"
	"time"
)

// layout describes where the values of a batch lie in its memory. It applies to all batches
// whose inputs have the same shapes.
type layout struct {
	// shapes holds the shape of each value. buffer holds the index of each value's buffer,
	// or -1 if ONNX Runtime allocates the value.
	shapes  []shape
	buffer  []int
	buffers []lifetime

	// bytes is the size of all buffers together.
	bytes int64

	// work is the peak of the memory that batches needed in addition, as scratch memory of
	// operators.
	work int64

	// live holds the result of liveBytes.
	live []int64

	// size is the size of the batch from which the layout was made, or 0 if that came from
	// another worker.
	size int

	// used is the time of the last use, on the pool's clock.
	used uint64

	// times holds the least time that each piece has taken on a device, or 0 if it is not
	// known.
	times []time.Duration
}

// takes returns the least time that a piece has taken on the device. It returns 0 if the
// time is not known or there is no layout.
func (l *layout) takes(piece int) time.Duration {
	if l == nil || l.times == nil {
		return 0
	}
	return l.times[piece]
}

// took records how long the device took for the pieces [from, to) together. Pieces whose
// times are not known get equal shares of it. If the known times add up to more, they
// include waits of the host or work of other processes, so took scales them down.
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

// planner creates a layout.
type planner struct {
	cut     *cutting
	options layoutOptions
	out     *layout
}

// layoutOptions control how layouts use memory.
type layoutOptions struct {
	// inPlace lets an output share the memory of an input that is not used later.
	inPlace bool

	// noReuse gives every value memory of its own, for tests.
	noReuse bool

	// far is set if the memory is a device's.
	far bool
}

// deviceAlign is the alignment in bytes of every value in a device's memory. Allocations
// have that alignment, and kernels may rely on it.
const deviceAlign = 256

// newLayout plans the memory of a batch whose values have the given shapes. gathered lists
// the values that the frame holds from the start, such as the inputs of a gathered batch.
func newLayout(c *cutting, shapes []shape, gathered []int32, o layoutOptions) *layout {
	l := &layout{shapes: shapes, buffer: make([]int, len(shapes))}
	for id := range l.buffer {
		l.buffer[id] = -1
	}
	p := &planner{cut: c, options: o, out: l}
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

// give creates a buffer for a value that is produced in a step.
func (p *planner) give(id int32, step int) {
	last := max(step, p.cut.lastAt[id])
	if p.options.noReuse {
		last = len(p.cut.pieces)
	}
	bytes := p.out.shapes[id].bytes
	if p.options.far {
		bytes = (max(bytes, 1) + deviceAlign - 1) &^ (deviceAlign - 1)
	}
	p.out.buffer[id] = len(p.out.buffers)
	p.out.buffers = append(p.out.buffers, lifetime{bytes: bytes, first: step, last: last})
}

// share places a value in the buffer of an input of its operator, if that is allowed, and
// reports whether it did.
func (p *planner) share(id int32, step int) bool {
	pc := &p.cut.pieces[step]
	if !p.options.inPlace || p.options.noReuse || len(pc.outputs) != 1 {
		return false
	}
	r, in := pc.reuse, pc.nodeInputs
	if p.options.far && !r.view {
		return false // on a GPU, sharing saves a copy only for views
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

// mayOverwrite reports whether buffer b, in which input pos lies, holds no value that is
// needed after this step or that is another input of it.
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

// liveBytes returns for every operator the bytes of intermediates that are live after it.
// These include outputs of the model. Each value counts once.
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

// tensorAlign is the alignment of every intermediate in bytes: the size of a cache line,
// and enough for the widest vector instructions.
const tensorAlign = 64

// lifetime is a buffer that is needed from step first to step last, including both.
type lifetime struct {
	bytes       int64
	first, last int

	// place sets offset.
	offset int64
}

// place assigns an offset to every buffer, so that buffers with overlapping lifetimes do
// not overlap in memory. It returns the total size. It places the largest buffers first,
// each at the lowest offset that is free during its lifetime.
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

// aligned rounds a size up to a positive multiple of tensorAlign.
func aligned(bytes int64) int64 {
	return max(tensorAlign, (bytes+tensorAlign-1)&^(tensorAlign-1))
}
