package tokenizer

import (
	"context"
	"sync"
)

// checkInterval is how many steps may pass until the context is asked.
const checkInterval = 1 << 16

// scratch is the memory of one call, kept for the next.
type scratch struct {
	ctx    context.Context
	spent  int // bytes since the context was asked
	pieces []piece
	spare  []piece
	ids    [2][]int64

	symbols []symbol
	queue   []uint64
	steps   []step
	ends    []int32
}

// scratches holds unused scratches.
var scratches = sync.Pool{New: func() any { return new(scratch) }}

// maxKept is the number of elements up to which the memory of a call is kept: enough for a portion. A word
// of a megabyte takes a hundred times its size.
const maxKept = 1 << 12

// release keeps the memory for another call, unless it is large. It keeps no text, because the text of a
// client must not stay in memory longer than the call.
func (s *scratch) release() {
	if max(cap(s.pieces), cap(s.spare), cap(s.symbols), cap(s.queue), cap(s.steps), cap(s.ids[0]), cap(s.ids[1])) > maxKept {
		return
	}
	s.ctx = nil
	clear(s.pieces[:cap(s.pieces)])
	clear(s.spare[:cap(s.spare)])
	scratches.Put(s)
}

// each splits every piece that is not a token.
func (s *scratch) each(split func(pieces []piece, p piece) []piece) {
	s.spare = s.spare[:0]
	for _, p := range s.pieces {
		if p.id != none {
			s.spare = append(s.spare, p)
		} else if p.text != "" {
			s.spare = split(s.spare, p)
		}
	}
	s.pieces, s.spare = s.spare, s.pieces
}

// check returns the error of the context.
func (s *scratch) check() error {
	s.spent = 0
	return s.ctx.Err()
}

// spend asks the context every checkInterval bytes.
func (s *scratch) spend(n int) error {
	if s.spent += n; s.spent < checkInterval {
		return nil
	}
	return s.check()
}

// symbol is a token of a piece that is being merged. Symbols are a linked list in an array. One that was
// merged into its predecessor has no ID.
type symbol struct{ id, previous, next int32 }

// addSymbol appends a symbol and links it with the one before.
func (s *scratch) addSymbol(id int32) {
	n := int32(len(s.symbols))
	if n > 0 {
		s.symbols[n-1].next = n
	}
	s.symbols = append(s.symbols, symbol{id, n - 1, none})
}

// push adds a merge to the heap. An item is a number: the rank in its upper half, the place in the lower.
func (s *scratch) push(rank, at int32) {
	item := uint64(rank)<<32 | uint64(at)
	s.queue = append(s.queue, item)
	i := len(s.queue) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if s.queue[parent] <= item {
			break
		}
		s.queue[i] = s.queue[parent]
		i = parent
	}
	s.queue[i] = item
}

// pop removes the next merge from the heap.
func (s *scratch) pop() (rank, at int32) {
	top, last := s.queue[0], len(s.queue)-1
	item := s.queue[last]
	s.queue = s.queue[:last]
	for i := 0; last > 0; {
		child := 2*i + 1
		if child+1 < last && s.queue[child+1] < s.queue[child] {
			child++
		}
		if child >= last || item <= s.queue[child] {
			s.queue[i] = item
			break
		}
		s.queue[i] = s.queue[child]
		i = child
	}
	return int32(top >> 32), int32(uint32(top))
}

// step is the best path to a place in a piece: its score, and its last token.
type step struct {
	score float64
	from  int32 // where the token begins, or none if no path leads here
	id    int32
}

// improve replaces the path by a better one. Of equal ones the first stays.
func (t *step) improve(score float64, from, id int32) {
	if t.from == none || score > t.score {
		*t = step{score, from, id}
	}
}
