package advice

import "math/bits"

// enumerate returns the best of all divisions, by dynamic programming over
// sets of services: with each further device, the first service that is left
// gets the company that leaves the rest best off.
func (v *divider) enumerate() [][]int {
	n := len(v.pair)
	full := 1<<n - 1
	scores := make([]score, full+1)
	for set := range scores {
		if bits.OnesCount(uint(set)) <= v.size {
			scores[set] = v.score(membersOf(set))
		}
	}
	// best[d][set] is the best division of the set over d devices.
	best := make([][]division, v.devices+1)
	best[0] = make([]division, full+1)
	best[0][0].ok = true
	for d := 1; d <= v.devices; d++ {
		best[d] = make([]division, full+1)
		for set := 1; set <= full; set++ {
			best[d][set] = v.extend(best[d-1], scores, set)
		}
	}
	most := 0
	for d := range best {
		if best[d][full].ok && (!best[most][full].ok || best[d][full].score.less(best[most][full].score)) {
			most = d
		}
	}
	var devices [][]int
	for d, set := most, full; set != 0; d-- {
		devices = append(devices, membersOf(best[d][set].last))
		set &^= best[d][set].last
	}
	return devices
}

// division is the best division of a set of services, if there is one.
type division struct {
	score score
	last  int // the set of services of its last device
	ok    bool
}

func (v *divider) extend(fewer []division, scores []score, set int) (best division) {
	first := set & -set
	others := set &^ first
	for company := others; ; company = (company - 1) & others {
		last := company | first
		if rest := fewer[set&^last]; rest.ok && bits.OnesCount(uint(last)) <= v.size {
			if s := rest.score.add(scores[last]); !best.ok || s.less(best.score) {
				best = division{s, last, true}
			}
		}
		if company == 0 {
			return best
		}
	}
}

func membersOf(set int) (members []int) {
	for ; set != 0; set &= set - 1 {
		members = append(members, bits.TrailingZeros(uint(set)))
	}
	return members
}
