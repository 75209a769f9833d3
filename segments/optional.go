package segments

import (
	"slices"

	"github.com/overlapd/overlapd/models"
)

// An optional may be empty, and ONNX Runtime cannot take an empty one as the
// input of a session. So what makes an optional and all that uses it go into
// one piece.

// nodes is a range of nodes, both ends included, that must not be divided.
type nodes struct{ first, last int }

// optionals returns the ranges over which pieces hand each other optionals.
func (c *cutting) optionals(types []models.Type) []nodes {
	var ranges []nodes
	for p := range c.pieces {
		for _, id := range c.pieces[p].outputs {
			if types[id].Kind != models.KindOptional {
				continue
			}
			if last := c.lastNode(id); last >= c.pieces[p].last {
				ranges = append(ranges, nodes{int(c.values.Producer[id]), last})
			}
		}
	}
	return ranges
}

// lastNode returns the last node that uses the value, -1 if none does.
func (c *cutting) lastNode(id int32) int {
	for n := len(c.values.NodeIn) - 1; n >= 0; n-- {
		if slices.Contains(c.values.NodeIn[n], id) || slices.Contains(c.values.NodeCaptures[n], id) {
			return n
		}
	}
	return -1
}

// join takes away the borders that divide what is joined.
func join(borders []int, joined []nodes) []int {
	return slices.DeleteFunc(borders, func(border int) bool {
		return slices.ContainsFunc(joined, func(r nodes) bool { return r.first < border && border <= r.last })
	})
}
