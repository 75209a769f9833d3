package segments

import (
	"cmp"
	"slices"
)

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

// maxPlacedBySize bounds the number of buffers that are placed by size, which
// takes time that grows with its square.
const maxPlacedBySize = 4096

// place gives every buffer an offset so that no two that live at the same
// time overlap, and returns how many bytes that takes. It takes the better of
// two orders; neither is best for all graphs.
func place(buffers []lifetime) int64 {
	total := placeByBirth(buffers)
	if len(buffers) > maxPlacedBySize {
		return total
	}
	other := slices.Clone(buffers)
	if bySize := placeBySize(other); bySize < total {
		copy(buffers, other)
		return bySize
	}
	return total
}

// placeBySize places the largest buffers first, each at the lowest offset
// where nothing lies that lives at the same time.
func placeBySize(buffers []lifetime) int64 {
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

// placeByBirth places buffers in the order of their birth, each into the
// smallest hole that holds it.
func placeByBirth(buffers []lifetime) int64 {
	order := make([]int, len(buffers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if c := cmp.Compare(buffers[a].first, buffers[b].first); c != 0 {
			return c
		}
		return cmp.Compare(buffers[b].bytes, buffers[a].bytes)
	})
	var total int64
	var live []int // sorted by offset
	for _, i := range order {
		b := &buffers[i]
		live = slices.DeleteFunc(live, func(j int) bool { return buffers[j].last < b.first })
		at := hole(buffers, live, aligned(b.bytes))
		b.offset = at
		pos, _ := slices.BinarySearchFunc(live, at, func(j int, at int64) int { return cmp.Compare(buffers[j].offset, at) })
		live = slices.Insert(live, pos, i)
		total = max(total, at+aligned(b.bytes))
	}
	return total
}

// hole returns the offset of the smallest gap between the live buffers that
// holds bytes, or the end of the last one.
func hole(buffers []lifetime, live []int, bytes int64) int64 {
	best, bestSize := int64(-1), int64(0)
	var end int64
	for _, j := range live {
		if gap := buffers[j].offset - end; gap >= bytes && (best < 0 || gap < bestSize) {
			best, bestSize = end, gap
		}
		end = max(end, buffers[j].offset+aligned(buffers[j].bytes))
	}
	if best < 0 {
		return end
	}
	return best
}

func aligned(bytes int64) int64 {
	return max(tensorAlign, (bytes+tensorAlign-1)&^(tensorAlign-1))
}
