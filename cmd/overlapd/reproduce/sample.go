package reproduce

import (
	"context"

	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/stats"
)

// Queries that are served in a second or so of one core.
const (
	sequentialSpeed  = 30_000
	overlappingSpeed = 8_000
)

// seconds is about what a run takes.
func (v *variant) seconds(queries int) float64 {
	if v.policy == "abacus" || v.policy == "overlap" {
		return float64(queries) / overlappingSpeed
	}
	return float64(queries) / sequentialSpeed
}

// sample is the runs of a trial with one seed after the other.
type sample struct {
	results []*sim.Result
}

// sampled adds a run for each seed.
func (o *Options) sampled(p *plan, stage string, t trial) *sample {
	s := &sample{results: make([]*sim.Result, o.Seeds)}
	for i := range s.results {
		t.seed = o.Seed + uint64(i)
		one := t
		p.add(stage, one.variant.seconds(one.queries), func(_ context.Context, l *lane) (err error) {
			s.results[i], err = l.run(&one)
			return err
		})
	}
	return s
}

// of returns the mean of a value over the seeds, and its standard deviation.
func (s *sample) of(value func(*sim.Result) float64) (mid, spread *float64) {
	list := make([]float64, len(s.results))
	for i, r := range s.results {
		list[i] = value(r)
	}
	return meanOf(list), rounded(stats.Deviation(list))
}

func violations(r *sim.Result) float64 { return r.Violations }
func tail(r *sim.Result) float64       { return r.P99OverTarget }
func throughput(r *sim.Result) float64 { return r.ThroughputQPS }
func goodput(r *sim.Result) float64    { return r.GoodputQPS }

// inTimeOf1000 is how many of 1,000 queries are answered in time.
func inTimeOf1000(r *sim.Result) float64 { return authorsQueries * (1 - r.Violations) }

// answeredOf1000 is what the authors call throughput: queries answered, late
// ones too, of 1,000.
func answeredOf1000(r *sim.Result) float64 {
	return authorsQueries * float64(r.Answered) / float64(max(r.Queries, 1))
}
