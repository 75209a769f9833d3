package advice

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Limits of dividing services.
const (
	exactServices  = 12  // up to so many the division is the best there is
	exchangeSweeps = 100 // over all exchanges of two services
	divisionStarts = 3   // orders in which services are dealt out at first
	balanceWeight  = 1.0 // unequal busy times against compatibility
	noGain         = 1e-9
)

// divider divides services into groups that share devices.
type divider struct {
	size    int // most services of a device
	devices int // most devices
	pairs   [][]pairGain
	busy    []float64 // share of a device that each service needs alone
	set     func(members []int) (compatibility float64, ok bool)
	fair    float64 // busy time of a device if all had the same

	rate   func(members []int) score // what else makes a division good, nil for none
	filled bool                      // no device stays empty
	starts [][][]int                 // divisions from which a search starts, too
}

// score is what a division costs, the smaller the better. A bad pair is worse
// than any overload, and an overload worse than any incompatibility.
type score struct {
	bad  int
	over float64 // busy time beyond what the devices have
	cost float64
}

func (s score) add(o score) score { return score{s.bad + o.bad, s.over + o.over, s.cost + o.cost} }
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

// prepare sets the busy time that devices should have.
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

// compatibility returns that of services on one device: as measured, or the
// mean over their pairs. A service alone gains nothing.
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

// gain returns the gain expected of services on one device.
func (v *divider) gain(members []int) float64 {
	return math.Pow(float64(max(len(members), 1)), v.compatibility(members))
}

// busyTime returns the share of a device that services need together.
func (v *divider) busyTime(members []int) (share float64) {
	for _, m := range members {
		share += v.busy[m]
	}
	return share / v.gain(members)
}

// score returns what it costs that services share a device. An empty device
// costs nothing; all others count against it.
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

func (v *divider) total(devices [][]int) (s score) {
	for _, members := range devices {
		s = s.add(v.score(members))
	}
	return s
}

// divide returns the services of each device, in order, and whether no
// division is better.
func (v *divider) divide() (devices [][]int, exact bool) {
	v.prepare()
	if exact = len(v.pairs) <= exactServices; exact {
		devices = v.enumerate()
	} else {
		devices = v.search()
	}
	devices = slices.DeleteFunc(devices, func(members []int) bool { return len(members) == 0 })
	for _, members := range devices {
		slices.Sort(members)
	}
	slices.SortFunc(devices, func(a, b []int) int { return a[0] - b[0] })
	return devices, exact
}

// search deals the services out one by one and then exchanges them while that
// helps, from several orders of dealing.
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

// order returns the services as they are listed, the other way round, or those
// that fit worst with all others first.
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

func (v *divider) deal(order []int) [][]int {
	devices := make([][]int, v.devices)
	for _, service := range order {
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

// exchange moves services to other devices, or swaps two, while that helps.
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

// between improves two devices by one service moved from the first to the
// second, or exchanged, for each service of the first.
func (v *divider) between(devices [][]int, d, e int) (better bool) {
	now := v.score(devices[d]).add(v.score(devices[e]))
	for i := 0; i < len(devices[d]); i++ {
		for j := 0; j <= len(devices[e]) && i < len(devices[d]); j++ {
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

// moved returns two devices after service i of the first was exchanged with
// service j of the second, or went there if there is no service j.
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

// enumerate returns the best of all divisions, by dynamic programming over
// sets of services: with each further device, the first service that is left
// gets the company that leaves the rest best off.
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
	best[0] = make([]partition, full+1)
	best[0][0].ok = true
	for d := 1; d <= v.devices; d++ {
		best[d] = make([]partition, full+1)
		for set := 1; set <= full; set++ {
			best[d][set] = v.extend(best[d-1], scores, set)
		}
	}
	most := 0
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
	last  int // the set of services of its last device
	ok    bool
}

func (v *divider) extend(fewer []partition, scores []score, set int) (best partition) {
	first := set & -set
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

func membersOf(set int) (members []int) {
	for ; set != 0; set &= set - 1 {
		members = append(members, bits.TrailingZeros(uint(set)))
	}
	return members
}
