package planning

import "math"

// relaxed is the solution of the linear program in which stages may have parts of devices. No plan
// is better (PPipe, appendix A.2, without equations 16 to 22).
type relaxed struct {
	// bound is the objective.
	bound float64

	// price is the price of a device of each class, in objective.
	price []float64

	// worth is the worth of a request a second of each service, in objective.
	worth   []float64
	columns []column
}

// column is a course of a service, with the rate assigned to it.
type column struct {
	service, course int
	rate            float64
}

// Limits of the simplex method: the number of pivots, and the value below which a number counts as
// 0.
const (
	maxPivots = 10_000
	tiny      = 1e-9
)

// relax solves the linear program with the simplex method. It has a row for each service, which
// gets the objective times its rate, and one for each class, whose devices are limited. The courses
// are priced one by one, and only those in the basis are stored.
func (p *pipes) relax(allowed func(service, course int) bool) *relaxed {
	services, rows := len(p.services), len(p.services)+len(p.classes)
	// The basis starts with the slacks of all rows, whose inverse is the identity.
	inverse, x, cost := make([][]float64, rows), make([]float64, rows), make([]float64, rows)
	// In the basis, the course -1 is the slack of a row, and the service -1 the objective.
	basis := make([]column, rows)
	for i := range inverse {
		inverse[i] = make([]float64, rows)
		inverse[i][i] = 1
		basis[i].course = -1
		if i < services {
			// A value above 0 prevents degenerate steps.
			x[i] = tiny * float64(1+i)
		} else {
			x[i] = float64(len(p.classes[i-services].devices))
		}
	}
	entering, dual := make([]float64, rows), make([]float64, rows)
	for range maxPivots {
		// The duals price the rows under the current basis.
		for i := range dual {
			dual[i] = 0
			for r := range inverse {
				dual[i] += cost[r] * inverse[r][i]
			}
		}
		best, gain := p.price(dual, allowed, entering)
		if gain <= tiny || p.over() {
			break
		}
		// The entering column replaces the first variable of the basis that it reduces to 0.
		leaving, least := -1, infinite
		direction := make([]float64, rows)
		for r := range inverse {
			for i, v := range entering {
				direction[r] += inverse[r][i] * v
			}
			if direction[r] > tiny && x[r]/direction[r] < least {
				leaving, least = r, x[r]/direction[r]
			}
		}
		if leaving < 0 {
			// The program is unbounded, which takes courses without cost.
			break
		}
		for r := range inverse {
			if r == leaving {
				continue
			}
			// Eliminate the entering column from the other rows.
			f := direction[r] / direction[leaving]
			x[r] = max(0, x[r]-f*x[leaving])
			for i := range inverse[r] {
				inverse[r][i] -= f * inverse[leaving][i]
			}
		}
		x[leaving] /= direction[leaving]
		for i := range inverse[leaving] {
			inverse[leaving][i] /= direction[leaving]
		}
		basis[leaving], cost[leaving] = best, 0
		// Only the objective has a cost.
		if best.service < 0 {
			cost[leaving] = 1
		}
	}
	result := &relaxed{price: dual[services:], worth: make([]float64, services)}
	p.certify(result, allowed)
	for r, c := range basis {
		if c.course >= 0 && c.service >= 0 && x[r] > tiny {
			c.rate = x[r]
			result.columns = append(result.columns, c)
		}
	}
	return result
}

// price returns the column with the largest gain for the duals, and sets its coefficients.
func (p *pipes) price(dual []float64, allowed func(service, course int) bool, entering []float64) (best column, gain float64) {
	services := len(p.services)
	// Three kinds of columns may enter: a slack, the objective, or a course.
	slack := -1
	for i, v := range dual {
		if -v > gain {
			slack, gain = i, -v
		}
	}
	best = column{service: -1}
	sum := 1.0
	for i, s := range p.services {
		sum -= dual[i] * s.Rate
	}
	if sum > gain {
		slack, gain = -1, sum
	}
	for s := range p.courses {
		for i := range p.courses[s] {
			if g := dual[s] - p.courses[s][i].cost(p, dual[services:]); g > gain && allowed(s, i) {
				best, gain = column{service: s, course: i}, g
			}
		}
	}
	clear(entering)
	switch {
	case best.service >= 0:
		c := &p.courses[best.service][best.course]
		entering[best.service] = -1
		for d, k := range p.lists[c.list] {
			entering[services+k] += 1 / c.rate[d]
		}
	case slack >= 0:
		best.course = -1
		best.service = 0
		entering[slack] = 1
	default:
		for i, s := range p.services {
			entering[i] = s.Rate
		}
	}
	return best, gain
}

// cost returns the cost of a request a second on a course.
func (c *course) cost(p *pipes, price []float64) (sum float64) {
	for d, k := range p.lists[c.list] {
		sum += price[k] / c.rate[d]
	}
	return sum
}

// certify turns prices into a bound. For any prices, no service gets a request for less than its
// cheapest course costs, so the bound holds even if the simplex method stopped early.
func (p *pipes) certify(r *relaxed, allowed func(service, course int) bool) {
	sum := 0.0
	for k := range r.price {
		r.price[k] = max(0, r.price[k])
	}
	for s := range p.services {
		r.worth[s] = infinite
		for i := range p.courses[s] {
			if allowed(s, i) {
				r.worth[s] = min(r.worth[s], p.courses[s][i].cost(p, r.price))
			}
		}
		sum += r.worth[s] * p.services[s].Rate
	}
	for k := range r.price {
		r.price[k] /= sum
		r.bound += r.price[k] * float64(len(p.classes[k].devices))
	}
	for s := range r.worth {
		r.worth[s] /= sum
	}
	if math.IsNaN(r.bound) {
		r.bound = infinite
	}
}
