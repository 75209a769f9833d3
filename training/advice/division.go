package advice

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Limits and weights of dividing services.
const (
	// exactServices is the number of services up to which all divisions are enumerated. The time
	// grows with 3^n.
	exactServices = 12
	// exchangeSweeps limits the passes over all exchanges.
	exchangeSweeps = 100
	// divisionStarts is the number of orders in which services are dealt out initially.
	divisionStarts = 3
	// balanceWeight is the weight of unequal busy times relative to compatibility.
	balanceWeight = 1.0
	// noGain is the difference of scores that counts as rounding.
	noGain = 1e-9
)

// divider divides services into groups that share devices.
type divider struct {
	// size is the greatest number of services on a device, and devices the number of devices.
	size    int
	devices int
	pairs   [][]pairGain
	// busy is the fraction of a device that each service needs alone.
	busy []float64
	set  func(members []int) (compatibility float64, ok bool)
	// fair is the busy time of a device if all devices had the same.
	fair float64

	// rate replaces the score of a device if it is not nil.
	rate func(members []int) score
	// filled requires that no device stays empty.
	filled bool
	// starts are additional divisions from which to search.
	starts [][][]int
}

// score is the cost of a division; less is better. Avoiding a bad pair has priority over
// avoiding overload, and that over compatibility.
type score struct {
	bad int
	// over is the busy time in excess of the devices' time.
	over float64
	cost float64
}

// add returns the cost of two parts of a division together.
func (s score) add(o score) score { return score{s.bad + o.bad, s.over + o.over, s.cost + o.cost} }

// sub returns the cost that remains of s without the part o.
func (s score) sub(o score) score { return score{s.bad - o.bad, s.over - o.over, s.cost - o.cost} }

// less reports whether s is better than o by more than rounding.
func (s score) less(o score) bool {
	switch {
	case s.bad != o.bad:
		return s.bad < o.bad
	case math.Abs(s.over-o.over) > noGain:
		return s.over < o.over
	}
	return s.cost < o.cost-noGain
}

// prepare computes the fair busy time of a device.
func (v *divider) prepare() {
	total, mean, n := 0.0, 0.0, 0.0
	for i := range v.pairs {
		total += v.busy[i]
		for j := range i {
			mean += v.pairs[i][j].log
			n++
		}
	}
	v.fair = total / float64(v.devices) / math.Pow(float64(min(v.size, len(v.pairs))), mean/max(n, 1))
}

// compatibility returns the compatibility of services on one device: the measured one, or the
// mean over their pairs. It is 0 for a single service.
func (v *divider) compatibility(members []int) float64 {
	switch len(members) {
	case 0, 1:
		return 0
	case 2:
		return v.pairs[members[0]][members[1]].log
	}
	if y, ok := v.set(members); ok {
		return y
	}
	sum, n := 0.0, 0
	for i, a := range members {
		for _, b := range members[:i] {
			sum += v.pairs[a][b].log
			n++
		}
	}
	return sum / float64(n)
}

// gain returns the expected gain of services on one device.
func (v *divider) gain(members []int) float64 {
	return math.Pow(float64(max(len(members), 1)), v.compatibility(members))
}

// busyTime returns the fraction of a device that services need together.
func (v *divider) busyTime(members []int) (share float64) {
	for _, m := range members {
		share += v.busy[m]
	}
	return share / v.gain(members)
}

// score returns the cost of putting services on one device. An empty device costs nothing. The
// balance term is the squared deviation from the fair busy time, without its constant.
func (v *divider) score(members []int) (s score) {
	if v.rate != nil {
		return v.rate(members)
	}
	for i, a := range members {
		for _, b := range members[:i] {
			if v.pairs[a][b].Bad {
				s.bad++
			}
		}
	}
	s.cost = -float64(len(members)) * v.compatibility(members) / float64(len(v.pairs))
	if v.fair > 0 {
		b := v.busyTime(members)
		s.over = max(b-1, 0)
		s.cost += balanceWeight * b * (b - 2*v.fair) / (v.fair * v.fair * float64(v.devices))
	}
	return s
}

// total returns the cost of a division.
func (v *divider) total(devices [][]int) (s score) {
	for _, members := range devices {
		s = s.add(v.score(members))
	}
	return s
}

// divide returns the services of each device, sorted, and whether no division is better.
func (v *divider) divide() (devices [][]int, exact bool) {
	v.prepare()
	if exact = len(v.pairs) <= exactServices; exact {
		devices = v.enumerate()
	} else {
		devices = v.search()
	}
	// Sorting makes the result independent of how the division was found.
	devices = slices.DeleteFunc(devices, func(members []int) bool { return len(members) == 0 })
	for _, members := range devices {
		slices.Sort(members)
	}
	slices.SortFunc(devices, func(a, b []int) int { return a[0] - b[0] })
	return devices, exact
}

// search builds several initial divisions, improves each by exchanges, and returns the best one.
func (v *divider) search() (best [][]int) {
	starts := v.starts
	for start := range divisionStarts {
		starts = append(starts, v.deal(v.order(start)))
	}
	for _, devices := range starts {
		v.exchange(devices)
		if best == nil || v.total(devices).less(v.total(best)) {
			best = devices
		}
	}
	return best
}

// order returns the services in one of three orders: as listed, reversed, or with those that
// are least compatible with all others first.
func (v *divider) order(start int) []int {
	order := make([]int, len(v.pairs))
	fit := make([]float64, len(v.pairs))
	for i := range order {
		order[i] = i
		for _, g := range v.pairs[i] {
			fit[i] += g.log
		}
	}
	switch start {
	case 1:
		slices.Reverse(order)
	case 2:
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(fit[a], fit[b]) })
	}
	return order
}

// deal adds services in the given order, each to the device where it costs least.
func (v *divider) deal(order []int) [][]int {
	devices := make([][]int, v.devices)
	for _, service := range order {
		// There is room, because the options ensure devices*size >= services.
		to, least := -1, score{}
		for d, members := range devices {
			if len(members) == v.size {
				continue
			}
			grown := append(slices.Clone(members), service)
			if s := v.score(grown).sub(v.score(members)); to < 0 || s.less(least) {
				to, least = d, s
			}
		}
		devices[to] = append(devices[to], service)
	}
	return devices
}

// exchange moves services to other devices, or swaps two, as long as that helps.
func (v *divider) exchange(devices [][]int) {
	for range exchangeSweeps {
		better := false
		for d := range devices {
			for e := range devices {
				if d != e {
					better = v.between(devices, d, e) || better
				}
			}
		}
		if !better {
			return
		}
	}
}

// between improves two devices by moving or swapping each service of the first with the second.
func (v *divider) between(devices [][]int, d, e int) (better bool) {
	now := v.score(devices[d]).add(v.score(devices[e]))
	for i := 0; i < len(devices[d]); i++ {
		for j := 0; j <= len(devices[e]) && i < len(devices[d]); j++ {
			// j past the last service of the second device stands for a move.
			from, to, ok := v.moved(devices[d], devices[e], i, j)
			if !ok {
				continue
			}
			if s := v.score(from).add(v.score(to)); s.less(now) {
				devices[d], devices[e] = from, to
				now, better = s, true
			}
		}
	}
	return better
}

// moved returns two devices after swapping service i of the first with service j of the second.
// If j is past the end of the second, it moves service i there, unless that device is full.
func (v *divider) moved(d, e []int, i, j int) (from, to []int, ok bool) {
	from, to = slices.Clone(d), slices.Clone(e)
	if j < len(e) {
		from[i], to[j] = to[j], from[i]
		return from, to, true
	}
	if len(e) == v.size {
		return nil, nil, false
	}
	return slices.Delete(from, i, i+1), append(to, d[i]), true
}

// enumerate returns the best of all divisions. It uses dynamic programming over sets of
// services: each further device gets the first remaining service, together with the companions
// that leave the best division of the rest.
func (v *divider) enumerate() [][]int {
	n := len(v.pairs)
	full := 1<<n - 1
	scores := make([]score, full+1)
	for set := range scores {
		if bits.OnesCount(uint(set)) <= v.size {
			scores[set] = v.score(membersOf(set))
		}
	}
	// best[d][set] is the best division of the set over d devices.
	best := make([][]partition, v.devices+1)
	// Without devices, only the empty set has a division.
	best[0] = make([]partition, full+1)
	best[0][0].ok = true
	for d := 1; d <= v.devices; d++ {
		best[d] = make([]partition, full+1)
		for set := 1; set <= full; set++ {
			best[d][set] = v.extend(best[d-1], scores, set)
		}
	}
	most := 0
	// An empty device is allowed unless filled is set.
	for d := range best {
		if best[d][full].ok && (d == v.devices || !v.filled) && (!best[most][full].ok || best[d][full].score.less(best[most][full].score)) {
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

// partition is the best division of a set of services, if there is one.
type partition struct {
	score score
	// last is the set of services on its last device.
	last int
	ok   bool
}

// extend returns the best division of set when one more device is added to those of fewer. The
// device must have the first service of set, so that no division is considered twice.
func (v *divider) extend(fewer []partition, scores []score, set int) (best partition) {
	first := set & -set
	// This enumerates all subsets of others, from the largest to the empty one.
	others := set &^ first
	for company := others; ; company = (company - 1) & others {
		last := company | first
		if rest := fewer[set&^last]; rest.ok && bits.OnesCount(uint(last)) <= v.size {
			if s := rest.score.add(scores[last]); !best.ok || s.less(best.score) {
				best = partition{s, last, true}
			}
		}
		if company == 0 {
			return best
		}
	}
}

// membersOf returns the services of a bit set.
func membersOf(set int) (members []int) {
	for ; set != 0; set &= set - 1 {
		members = append(members, bits.TrailingZeros(uint(set)))
	}
	return members
}
