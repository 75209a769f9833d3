package bound

import (
	"math/bits"
	"testing"
	"time"
)

const second = time.Second

func TestJobs(t *testing.T) {
	for name, c := range map[string]struct {
		jobs           []job
		exact, relaxed int
	}{
		"none":                     {nil, 0, 0},
		"one fits":                 {[]job{{0, second, 1}}, 1, 1},
		"one does not":             {[]job{{0, second, 1.1}}, 0, 0},
		"two in turn":              {[]job{{0, 2 * second, 1}, {0, 2 * second, 1}}, 2, 2},
		"two at once":              {[]job{{0, second, 1}, {0, second, 1}}, 1, 1},
		"halves make a whole":      {[]job{{0, 3 * second, 2}, {0, 3 * second, 2}, {0, 3 * second, 2}}, 1, 1},
		"thirds do as well":        {[]job{{0, 2 * second, 1.5}, {2 * second, 4 * second, 3}, {4 * second, 6 * second, 3}}, 1, 2},
		"the small ones first":     {[]job{{0, 3 * second, 3}, {0, 3 * second, 1}, {second, 3 * second, 1}}, 2, 2},
		"interrupted by an urgent": {[]job{{0, 4 * second, 3}, {second, 2 * second, 1}}, 2, 2},
		"no work":                  {[]job{{0, second, 0}, {0, second, 1}}, 2, 2},
	} {
		if got := exact(c.jobs); got != c.exact {
			t.Errorf("%s: %d can be done, want %d", name, got, c.exact)
		}
		if got := relaxed(c.jobs); got != c.relaxed {
			t.Errorf("%s: %d can be done in parts, want %d", name, got, c.relaxed)
		}
	}
}

// exact returns the size of the largest set of jobs that fits: it tries all.
func exact(jobs []job) (most int) {
	for set := range uint(1) << len(jobs) {
		if n := bits.OnesCount(set); n > most && fits(jobs, set) {
			most = n
		}
	}
	return most
}

// fits reports whether no interval holds more work of a set of jobs than time.
func fits(jobs []job, set uint) bool {
	for i := range jobs {
		for k := range jobs {
			from, to, work := jobs[i].from, jobs[k].to, 0.0
			for n, j := range jobs {
				if set>>n&1 == 1 && j.from >= from && j.to <= to {
					work += j.work
				}
			}
			if work > max((to-from).Seconds(), 0)+tolerance {
				return false
			}
		}
	}
	return true
}
