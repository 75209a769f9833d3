package advice

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/predictor"
)

// Constants of static splits.
const (
	// shareStep is the granularity of a split, in percent.
	shareStep = 5
	// mostSplit is the number of services on a device up to which a split is computed.
	mostSplit = 4
)

// staticSplit is the best static split of a device. Percent holds the share that each service
// has to itself. Static is how many times their loads the services sustain with it. EDF and
// Overlap are the same for the whole device with one batch at a time, and with one batch of
// each service concurrently. A load is sustained if a query that has just missed a batch meets
// its target with the next one.
type staticSplit struct {
	Services []string `json:"services"`
	Percent  []int    `json:"active_thread_percentage"`
	Static   float64  `json:"static"`
	EDF      float64  `json:"edf"`
	Overlap  float64  `json:"overlap"`
}

// batchTimes holds the times of a batch of a service in microseconds: the isolated latency and
// work of the whole batch, and those of each operator.
type batchTimes struct {
	queries       float64
	micros, work  float64
	operator, job []float64
}

// in returns the time of a batch in a share. An operator takes as long as on the whole device,
// or as its work takes in the share if that is longer, as in package device.
func (b *batchTimes) in(percent int) float64 {
	took := b.micros
	for i, micros := range b.operator {
		took += max(min(b.job[i], micros)*100/float64(percent)-micros, 0)
	}
	return took
}

// batches returns the batches of a service at its longest known sequence length, by ascending
// size. It omits those that take no less time and work than a larger batch. queries is relative
// to the smallest measured batch.
func (p *panel) batches(t *soloTimes, service int) (list []batchTimes) {
	var cells []*soloCell
	for k, c := range t.cells {
		if k.model == p.model[service] && c.costs != nil {
			cells = append(cells, c)
		}
	}
	slices.SortFunc(cells, func(a, b *soloCell) int {
		return cmp.Or(cmp.Compare(b.key.seqLen, a.key.seqLen), cmp.Compare(a.key.size, b.key.size))
	})
	// Cells are sorted by descending sequence length, so the first ones have the longest. The
	// smallest batch is kept even if it exceeds MaxBatch.
	most := p.services[service].MaxBatch
	for n, c := range cells {
		if c.key.seqLen != cells[0].key.seqLen || n > 0 && most > 0 && c.key.size > most {
			break
		}
		b := batchTimes{queries: float64(c.key.size) / float64(cells[0].key.size), micros: c.whole()}
		for i := range len(c.prefix) - 1 {
			micros, work := c.costs(i, i+1)
			b.operator, b.job, b.work = append(b.operator, micros), append(b.job, work), b.work+work
		}
		// A smaller batch that is no faster than this one is never the better choice.
		for len(list) > 0 && list[len(list)-1].micros >= b.micros && list[len(list)-1].work >= b.work {
			list = list[:len(list)-1]
		}
		list = append(list, b)
	}
	return list
}

// split returns the best static split of a device. It returns nil unless the load, the target
// and measured batches of all its services are known.
func (p *panel) split(t *soloTimes, members []int) *staticSplit {
	// A service alone needs no split, and more than mostSplit would get tiny shares.
	if len(members) < 2 || len(members) > mostSplit {
		return nil
	}
	s := &staticSplit{}
	var all [][]batchTimes
	for _, m := range members {
		of := &p.services[m]
		if all = append(all, p.batches(t, m)); of.QPS == 0 || of.Target == 0 || len(all[len(all)-1]) == 0 {
			return nil
		}
		s.Services, s.Percent = append(s.Services, of.Name), append(s.Percent, shareStep)
	}
	// alone returns how many times its load service i sustains in its current share.
	alone := func(i int) (most float64) {
		of := &p.services[members[i]]
		for k := range all[i] {
			if took := all[i][k].in(s.Percent[i]); 2*took <= of.Target.Seconds()*1e6 {
				most = max(most, all[i][k].queries/took*1e6/of.QPS)
			}
		}
		return most
	}
	// Each step of the device goes to the service that sustains least, which is optimal because
	// the result is the minimum over the services.
	for left := 100/shareStep - len(members); left >= 0; left-- {
		least := 0
		for i := range members {
			if alone(i) < alone(least) {
				least = i
			}
		}
		if s.Static = alone(least); left > 0 {
			s.Percent[least] += shareStep
		}
	}
	s.EDF, s.Overlap = p.together(members, all, false), p.together(members, all, true)
	return s
}

// together returns how many times their loads services sustain if each runs one batch
// repeatedly, all concurrently or one after another. It starts with the smallest batches. Only
// a larger batch of the service that sustains least can raise the result, so it enlarges that
// one until a service misses its target. No other choice of batches is better.
func (p *panel) together(members []int, all [][]batchTimes, overlapped bool) (most float64) {
	chosen, micros := make([]int, len(members)), make([]float64, len(members))
	for {
		sum, work := 0.0, 0.0
		for i, k := range chosen {
			micros[i] = all[i][k].micros
			sum, work = sum+micros[i], work+all[i][k].work
		}
		// In one cycle, each service runs one batch.
		cycle := sum
		if overlapped {
			cycle = min(sum, predictor.Together(micros, work))
		}
		least, at := math.Inf(1), 0
		for i, m := range members {
			// ends is when the batch after the missed one ends.
			of, ends := &p.services[m], micros[i]
			if overlapped {
				ends = cycle
			}
			if cycle+ends > of.Target.Seconds()*1e6 {
				return most
			}
			if bears := all[i][chosen[i]].queries / cycle * 1e6 / of.QPS; bears < least {
				least, at = bears, i
			}
		}
		most = max(most, least)
		if chosen[at]++; chosen[at] == len(all[at]) {
			return most
		}
	}
}

// showSplits shows the static splits next to sharing the whole device.
func (a *Advice) showSplits(d *report.Document) {
	if len(a.Splits) == 0 {
		return
	}
	d.Heading("Static splits, where loads and targets are known")
	t := report.NewTable("services", "active_thread_percentage", "static", "edf", "overlap")
	for _, s := range a.Splits {
		percent := make([]string, len(s.Percent))
		for i, n := range s.Percent {
			percent[i] = fmt.Sprint(n)
		}
		t.Row(strings.Join(s.Services, ", "), strings.Join(percent, ", "), fmt.Sprintf("%.2f", s.Static), fmt.Sprintf("%.2f", s.EDF), fmt.Sprintf("%.2f", s.Overlap))
	}
	d.Table(t)
	d.List(`Numbers are the multiples of their loads that the services sustain with evenly spaced queries. Where static has the highest, try it with bursts: overlapd-lab simulate --policy edf,static,overlap --shares takes these percentages, and policy = "static" serves with them.`)
}
