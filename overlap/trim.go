package overlap

import (
	"math"
	"slices"
	"sort"
	"time"
)

// alike is all work of a decision where that is queries of one service that can be batched and take
// equally long. No query is then the longest. What one costs is what its deadline makes of its batch.
type alike struct {
	queries        []*query      // that can be in time, the most urgent first
	most           int           // of them that a batch takes
	alone, further time.Duration // the isolated latency of a batch of one, and what each other one adds
	round          time.Duration // what a round costs
	devices        time.Duration
	free           []time.Duration // when each share of the device is free on which a batch may start
	ends           []time.Duration // the same after the batches so far
	whole          bool            // a smaller batch than could be would cost later ones their time
}

// alike returns the work of a service, the only one for which queries wait. It is false if they are
// not alike.
func (t *triage) alike(d *decision, sv *service) (a alike, ok bool) {
	q := t.queries[0]
	if slices.ContainsFunc(t.queries, func(o *query) bool { return o.Size != q.Size || !o.mergesWith(q) }) {
		return a, false
	}
	a = alike{most: 1, whole: d.device.units == 1, alone: q.Takes.Alone, round: d.s.backlog.roundTime, devices: time.Duration(max(sv.places(), 1))}
	if q.Takes.Full > 0 && q.Size < sv.MaxBatch {
		a.most = sv.MaxBatch / q.Size
		if units := d.device.units; units > 1 { // no more than leaves each unit its part, as in merge
			a.most = min(a.most, (len(t.queries)+units-1)/units)
		}
		a.further = time.Duration(float64(q.Takes.Full-q.Takes.Alone) / float64(sv.MaxBatch-q.Size) * float64(q.Size))
	}
	t.free = d.device.frees(t.free[:0], d.at)
	a.free = t.free[:max(len(t.free)/max(q.Takes.Share, 1), 1)]
	t.ends = slices.Grow(t.ends[:0], len(a.free))[:len(a.free)]
	a.ends = t.ends
	a.queries = slices.DeleteFunc(t.queries, func(q *query) bool {
		if q.Takes.Alone == 0 || q.Rank.Filler {
			return true
		}
		late := d.at+q.Takes.Alone > q.Deadline
		if late && q.Takes.Share > 0 { // it would be in time on more units at most
			q.postponed = t.number
		}
		return late
	})
	return a, len(a.queries) > 0
}

// batch returns the isolated latency of a batch.
func (a *alike) batch(queries int) time.Duration {
	return a.alone + time.Duration(queries-1)*a.further
}

// roll batches queries in the order of their deadlines. It returns when the last batch ends, and for
// how long all of them could wait. It is false if a query would be late or, if the first batch is to be
// whole, makes that one smaller than it could be.
func (a *alike) roll(at time.Duration, queries []*query, whole bool) (end, spare time.Duration, ok bool) {
	end, spare = at, forever
	copy(a.ends, a.free)
	for len(queries) > 0 {
		k := 0
		for i := range a.ends {
			if a.ends[i] < a.ends[k] {
				k = i
			}
		}
		end = a.ends[k]
		n, due := min(len(queries), a.most), queries[0].Deadline
		for n > 0 && end+a.batch(n) > due {
			n--
		}
		if n == 0 || whole && end == at && n < min(len(queries), a.most) {
			return end, spare, false
		}
		spare = min(spare, due-end-a.batch(n))
		a.ends[k] += (a.batch(n) + a.round) / a.devices
		queries = queries[n:]
	}
	return slices.Min(a.ends), spare, true
}

// trim postpones the most urgent queries, as few as possible, so that the others are in time. With
// little time to spare the first batch must be whole, too: smaller ones take more time for each query,
// which queries would lack that arrive meanwhile.
func (t *triage) trim(at time.Duration, a *alike) {
	n := len(a.queries)
	end, spare, ok := a.roll(at, a.queries, false)
	if !ok || a.whole && end+a.batch(min(n, a.most)) > a.queries[n-1].Deadline {
		late := sort.Search(n-1, func(k int) bool {
			_, _, ok := a.roll(at, a.queries[k:], a.whole)
			return ok
		})
		_, spare, _ = a.roll(at, a.queries[late:], a.whole)
		for _, q := range a.queries[:late] {
			q.postponed = t.number
		}
	}
	t.slacks = append(t.slacks, slack{math.MaxInt, spare})
}
