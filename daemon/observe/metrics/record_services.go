package metrics

// setServices makes the record one of at least so many services. Those that are
// new have noted nothing.
func (r *Record) setServices(n int) {
	for len(r.services) < n {
		r.services = append(r.services, newQueries())
	}
}

// fold adds what was noted of the queries of one service to those of another,
// which then goes on with them, and forgets it of the first. It may be done
// again, for what the first has answered since. A service that the record was
// not made for has noted nothing.
func (r *Record) fold(from, to int) {
	if from == to || from < 0 || from >= len(r.services) || to < 0 {
		return
	}
	r.setServices(to + 1)
	source, sum := r.services[from].all(), r.services[to].all()
	for i := range source {
		sum[i].add(source[i])
	}
	r.clear(from)
}

// clear forgets what was noted of the queries of a service, for another one that
// is to have its place.
func (r *Record) clear(service int) {
	if service < 0 || service >= len(r.services) {
		return
	}
	for _, h := range r.services[service].all() {
		clear(h.counts)
		h.sum = 0
	}
}

func newQueries() queries {
	return queries{newHistogram(latencyBounds), newHistogram(targetBounds), newHistogram(latencyBounds)}
}

func (q *queries) all() [3]*Histogram { return [...]*Histogram{&q.latency, &q.target, &q.queue} }
