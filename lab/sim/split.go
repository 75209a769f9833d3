package sim

import (
	"cmp"
	"math"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// split is a static plan like that of Nexus (SOSP 2019, section 6.1). It determines which
// devices serve a service, in batches of what size, and which part of its queries each device
// gets. The plan is made once, for the rates of the whole run. It therefore knows more than
// Nexus, which plans for the rates of the recent past.
//
// On its device a service may form larger batches than planned for its rate: as large as if
// it had the device to itself. In measurements that answered more queries in time.
type split struct {
	// parts holds the parts of each service, and largest its largest batch.
	parts   [][]part
	largest []int
}

// bin is the work that a device repeats in every cycle, whose length is in seconds.
type bin struct {
	cycle  float64
	shares []share
}

// share is a part of a service on a device: its rate in queries per second, and its largest
// batch.
type share struct {
	service models.ServiceID
	rate    float64
	batch   int
}

// part is the rate of a service on a device. owed is how many queries the device should
// have received beyond those that it got.
type part struct {
	device int
	rate   float64
	owed   float64
}

// demand is the load of a service, for which the plan is made.
type demand struct {
	// rate is in queries per second, target in seconds. most is the largest batch, and took
	// returns its isolated latency in seconds.
	rate   float64
	target float64
	most   int
	took   func(batch int) float64
}

// splitTries is the number of steps of the binary search for the largest load that fits.
// The last step no longer matters.
const splitTries = 20

// newSplit plans for the largest multiple of the run's rates that fits the devices.
func newSplit(sc *Scenario, submitted []Query, bound []int) *split {
	seconds := max(submitted[len(submitted)-1].At.Seconds(), 1e-9)
	streams := make([]demand, len(sc.Services))
	known := sc.Device.Models()
	for i := range streams {
		s := &sc.Services[i]
		span := models.Span{Service: models.ServiceID(bound[i]), End: known[bound[i]].Operators, SeqLen: most(s.SeqLens, 0)}
		group := models.Group{Spans: make([]models.Span, 1)}
		streams[i] = demand{target: s.Target.Seconds(), most: max(s.MaxBatch, most(s.Sizes, 1)), took: func(batch int) float64 {
			group.Spans[0] = span
			group.Spans[0].Size = batch
			return sc.Device.Latency(group).Seconds()
		}}
	}
	for i := range submitted {
		streams[submitted[i].Service].rate += float64(submitted[i].Size) / seconds
	}
	devices := sc.devices()
	low, high := 0.0, 1.0
	for range splitTries {
		if len(pack(streams, high)) > devices {
			break
		}
		low, high = high, 2*high
	}
	for range splitTries {
		if mid := (low + high) / 2; len(pack(streams, mid)) <= devices {
			low = mid
		} else {
			high = mid
		}
	}
	p := deal(pack(streams, cmp.Or(low, high)), devices, len(streams))
	for i := range streams {
		p.largest = append(p.largest, streams[i].turns())
	}
	return p
}

// deal assigns bins to devices. If there are more bins than devices, devices get several
// bins. If there are fewer, the remaining devices repeat the bins of others.
func deal(packed []bin, devices, services int) *split {
	p := &split{parts: make([][]part, services)}
	for i := range max(devices, len(packed)) {
		for _, s := range packed[i%len(packed)].shares {
			p.parts[s.service] = append(p.parts[s.service], part{device: i % devices, rate: s.rate})
		}
	}
	for i := range p.parts {
		if len(p.parts[i]) == 0 { // it has no queries, or the other services need more devices than a plan may have
			p.parts[i] = []part{{device: i % devices, rate: 1}}
		}
	}
	return p
}

// next returns the device for the next query of a service. It distributes the queries over
// the parts as evenly as possible.
func (p *split) next(service models.ServiceID) int {
	parts := p.parts[service]
	total, first := 0.0, 0
	for i := range parts {
		parts[i].owed += parts[i].rate
		total += parts[i].rate
		if parts[i].owed > parts[first].owed {
			first = i
		}
	}
	parts[first].owed -= total
	return parts[first].device
}

// limit sets the largest batch of each service.
func (p *split) limit(services []models.Service) {
	for i := range services {
		services[i].MaxBatch = p.largest[i]
	}
}

// pack returns bins for the given multiple of the rates. Each service first gets as many
// devices as it fills alone, in batches of which one may wait for another. The remainders
// share devices: the fullest comes first, and each goes where it leaves the least room.
func pack(streams []demand, factor float64) (bins []bin) {
	var rest []bin
	for i := range streams {
		s, left := &streams[i], factor*streams[i].rate
		if left == 0 {
			continue
		}
		batch := s.turns()
		took := s.took(batch)
		whole := bin{took, []share{{models.ServiceID(i), float64(batch) / took, batch}}}
		for ; left >= whole.shares[0].rate; left -= whole.shares[0].rate {
			if bins = append(bins, whole); len(bins) > MaxDevices {
				return bins
			}
		}
		if left < 1e-9*whole.shares[0].rate {
			continue
		}
		alone := batch
		batch = s.largest(func(took float64, batch int) bool { return took+float64(batch)/left <= s.target })
		if float64(batch)/left < s.took(batch) { // the batch is too small to keep up, so the remainder gets its own device
			rest = append(rest, bin{took, []share{{models.ServiceID(i), left, alone}}})
			continue
		}
		took = s.took(batch)
		cycle := max(min(float64(batch)/left, s.target-took), took)
		rest = append(rest, bin{cycle, []share{{models.ServiceID(i), left, batch}}})
	}
	occupied := func(b *bin) (sum float64) {
		for _, s := range b.shares {
			sum += streams[s.service].took(s.batch)
		}
		return sum / b.cycle
	}
	slices.SortStableFunc(rest, func(a, b bin) int { return cmp.Compare(occupied(&b), occupied(&a)) })
	single := len(bins)
	for _, b := range rest {
		best, at, most := bin{}, -1, 0.0
		for i := single; i < len(bins); i++ {
			both := b.with(&bins[i])
			if full := occupied(&both); full <= 1 && full > most {
				best, at, most = both, i, full
			}
		}
		if at >= 0 {
			bins[at] = best
		} else {
			bins = append(bins, b)
		}
	}
	return bins
}

// with returns the two bins as one. Its cycle is the shorter of theirs.
func (b *bin) with(o *bin) bin {
	both := bin{min(b.cycle, o.cycle), slices.Concat(b.shares, o.shares)}
	for i := range both.shares {
		s := &both.shares[i]
		s.batch = max(int(math.Ceil(s.rate*both.cycle-1e-9)), 1)
	}
	return both
}

// turns returns the largest batch of which one may wait for another and still meet the
// target.
func (s *demand) turns() int {
	return s.largest(func(took float64, _ int) bool { return 2*took <= s.target })
}

// largest returns the largest batch for which fits returns true, or 1 if there is none.
func (s *demand) largest(fits func(took float64, batch int) bool) int {
	low, high := 1, s.most
	for low < high {
		if mid := (low + high + 1) / 2; fits(s.took(mid), mid) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}
