package planning

import "slices"

// programmed is the problem as a mixed integer linear program (PPipe, appendix A.2), over
// all courses.
type programmed struct {
	program
	courses []column
	used    int   // the first of the variables that say which courses are used
	rates   int   // the first of those that say what courses answer a second
	devices []int // for each course the first of those of its stages
}

// write makes the program. Its first variable is the objective.
func (b *box) write() *programmed {
	m := &programmed{}
	m.add(variable{high: b.relaxed.bound * (1 + negligible), cost: -1}, 1)
	for s := range b.pipes.services {
		for i := range b.pipes.courses[s] {
			m.courses = append(m.courses, column{service: s, course: i})
		}
	}
	m.used = m.add(binary, len(m.courses))
	m.rates = m.add(variable{high: infinite}, len(m.courses))
	classes, services := make([][]term, len(b.pipes.classes)), make([][]term, len(b.pipes.services))
	lists := make([][][]term, len(b.pipes.services))
	for s := range lists {
		lists[s] = make([][]term, len(b.pipes.lists))
		services[s] = []term{{0, -b.pipes.services[s].Rate}}
	}
	for i, c := range m.courses {
		course := &b.pipes.courses[c.service][c.course]
		used, rate := m.used+i, m.rates+i
		services[c.service] = append(services[c.service], term{rate, 1})
		for d, k := range b.pipes.lists[course.list] {
			n := m.add(variable{high: float64(len(b.pipes.classes[k].devices)), integer: true}, 1)
			if d == 0 {
				m.devices = append(m.devices, n)
			}
			m.require(-infinite, 0, term{rate, 1}, term{n, -course.rate[d]})
			m.require(-infinite, 0, term{n, 1}, term{used, -float64(len(b.pipes.classes[k].devices))})
			classes[k] = append(classes[k], term{n, 1})
		}
		for list := range b.pipes.lists {
			if slices.Equal(b.pipes.lists[list], b.pipes.lists[course.list][:min(len(b.pipes.lists[list]), len(b.pipes.lists[course.list]))]) {
				lists[c.service][list] = append(lists[c.service][list], term{used, 1})
			}
		}
	}
	for k, c := range b.pipes.classes {
		m.require(-infinite, float64(len(c.devices)), classes[k]...)
	}
	for s := range services {
		m.require(0, infinite, services[s]...)
		for list, begin := range lists[s] { // no more pipelines begin with it than there are lists that do
			longer := 1
			for range b.pipes.stages - len(b.pipes.lists[list]) {
				longer *= len(b.pipes.classes)
			}
			if len(begin) > longer {
				m.require(-infinite, float64(longer), begin...)
			}
		}
	}
	return m
}

// bySolver has a solver find the best plan.
func (b *box) bySolver() (best []assignment, objective float64) {
	m := b.write()
	found := b.pipes.ask(&m.program, nil)
	if found == nil || found.infeasible || !found.optimal {
		return nil, 0
	}
	for i, c := range m.courses {
		if rate := found.x[m.rates+i]; found.x[m.used+i] > 0.5 && rate > 0 {
			a := assignment{service: c.service, course: &b.pipes.courses[c.service][c.course], rate: infinite}
			for d := range b.pipes.lists[a.course.list] {
				a.rate = min(a.rate, found.x[m.devices[i]+d]*a.course.rate[d])
			}
			best = append(best, a)
		}
	}
	return best, found.x[0]
}
