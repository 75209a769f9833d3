package models

import "iter"

// Alive returns the intermediates at the cut before node k: the values that a
// node before k produces and that node k or a later one uses, or that are
// outputs of the graph. They are in the order in which they are produced.
//
// Inputs of the graph are no intermediates, as they are there from the start;
// LastUse tells until when they are needed.
func (v *Values) Alive(k int) []int32 {
	var alive []int32
	for id := v.produced; id < len(v.Names) && int(v.Producer[id]) < k; id++ {
		if int(v.LastUse[id]) >= k {
			alive = append(alive, int32(id))
		}
	}
	return alive
}

// AliveNames returns the names of the intermediates at the cut before node k.
func (v *Values) AliveNames(k int) []string {
	ids := v.Alive(k)
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = v.Names[id]
	}
	return names
}

// Cuts yields each cut, from the one before the first node to the one after
// the last, with its intermediates. The slice is good until the next cut.
func (v *Values) Cuts() iter.Seq2[int, []int32] {
	return func(yield func(int, []int32) bool) {
		var alive []int32
		for k := 0; ; k++ {
			if !yield(k, alive) || k == len(v.NodeOut) {
				return
			}
			alive = v.pass(alive, k)
		}
	}
}

// pass turns the intermediates before node k into those after it.
func (v *Values) pass(alive []int32, k int) []int32 {
	if v.lastUsedBy(k) {
		kept := alive[:0]
		for _, id := range alive {
			if int(v.LastUse[id]) > k {
				kept = append(kept, id)
			}
		}
		alive = kept
	}
	for _, id := range v.NodeOut[k] {
		if id != absent && int(v.LastUse[id]) > k {
			alive = append(alive, id)
		}
	}
	return alive
}

func (v *Values) lastUsedBy(k int) bool {
	for _, ids := range [][]int32{v.NodeIn[k], v.NodeCaptures[k]} {
		for _, id := range ids {
			if id != absent && int(v.LastUse[id]) == k {
				return true
			}
		}
	}
	return false
}
