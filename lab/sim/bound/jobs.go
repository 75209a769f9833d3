package bound

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// tolerance is the number of seconds by which work may exceed an interval because of
// rounding.
const tolerance = 1e-9

// relaxed returns the largest number of jobs that can be done if a part of a job counts as
// that part of one.
func relaxed(jobs []job) int {
	t := newTimetable(jobs)
	done := 0.0
	for _, i := range t.byWork() {
		if jobs[i].work == 0 {
			done++
			continue
		}
		part := min(t.room(i), jobs[i].work)
		if part > 0 {
			t.taken[i] += part
			done += part / jobs[i].work
		}
	}
	return min(int(done+tolerance*float64(len(jobs))), len(jobs))
}

// timetable records how much work of each job is done. byFrom lists the jobs with the
// latest start first. ends lists the distinct ends of all jobs in ascending order. end
// holds for each job the position of its end in ends.
type timetable struct {
	jobs   []job
	byFrom []int
	ends   []time.Duration
	end    []int
	taken  []float64
	sums   []float64
}

// newTimetable returns a timetable in which no work is done.
func newTimetable(jobs []job) *timetable {
	t := &timetable{jobs: jobs, end: make([]int, len(jobs)), taken: make([]float64, len(jobs))}
	for i := range jobs {
		t.byFrom, t.ends = append(t.byFrom, i), append(t.ends, jobs[i].to)
	}
	slices.SortFunc(t.byFrom, func(a, b int) int { return cmp.Compare(jobs[b].from, jobs[a].from) })
	slices.Sort(t.ends)
	t.ends = slices.Compact(t.ends)
	for i := range jobs {
		t.end[i] = sort.Search(len(t.ends), func(k int) bool { return t.ends[k] >= jobs[i].to })
	}
	t.sums = make([]float64, len(t.ends))
	return t
}

// byWork returns the jobs in ascending order of their work.
func (t *timetable) byWork() []int {
	order := slices.Clone(t.byFrom)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.jobs[a].work, t.jobs[b].work) })
	return order
}

// room returns how much work of job i still fits: the smallest free time in any interval
// that contains the job's own.
func (t *timetable) room(i int) float64 {
	clear(t.sums)
	least := (t.jobs[i].to - t.jobs[i].from).Seconds()
	for n, k := range t.byFrom {
		j := &t.jobs[k]
		t.sums[t.end[k]] += t.taken[k]
		last := n+1 == len(t.byFrom) || t.jobs[t.byFrom[n+1]].from != j.from
		if !last || j.from > t.jobs[i].from {
			continue
		}
		work := 0.0
		for e, sum := range t.sums {
			if work += sum; e >= t.end[i] {
				least = min(least, (t.ends[e]-j.from).Seconds()-work)
			}
		}
	}
	return max(least, 0)
}
