package sim

import (
	"cmp"
	"math"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// split is a static plan in the manner of Nexus (SOSP 2019, section 6.1): which devices
// serve a service, in batches of what size, and what part of its queries each gets. It is
// made once, for the rates of the whole run, and so knows more than Nexus, which plans
// for the rates of the time before.
//
// On its device a service may have larger batches than are planned for the rate, as large
// as they are where it is alone: measured, that has more queries in time.
type split struct {
	parts   [][]part // of each service
	largest []int    // batch of each service
}

// bin is what one device does again and again within a cycle of so many seconds.
type bin struct {
	cycle  float64
	shares []share
}

// share is a part of a service on a device: so many queries per second, in batches of up
// to so many.
type share struct {
	service models.ServiceID
	rate    float64
	batch   int
}

// part is the place of a service on a device, and how many of its queries that is owed.
type part struct {
	device int
	rate   float64
	owed   float64
}

// demand is what is to be planned of a service.
type demand struct {
	rate   float64 // queries per second
	target float64 // seconds
	most   int     // largest batch
	took   func(batch int) float64
}

// splitTries is how often the load that just fits is halved in; the last half is of no
// account.
const splitTries = 20

// newSplit plans for as many times the queries of a run as the devices can be planned for.
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

// deal gives each device a bin, or those that are one too many the device of another, and
// devices that are left what others do.
func deal(packed []bin, devices, services int) *split {
	p := &split{parts: make([][]part, services)}
	for i := range max(devices, len(packed)) {
		for _, s := range packed[i%len(packed)].shares {
			p.parts[s.service] = append(p.parts[s.service], part{device: i % devices, rate: s.rate})
		}
	}
	for i := range p.parts {
		if len(p.parts[i]) == 0 { // nothing is asked of it, or so much of others that no plan is to be had
			p.parts[i] = []part{{device: i % devices, rate: 1}}
		}
	}
	return p
}

// next returns the device for the next query of a service. Each gets its part as evenly
// as can be.
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

// limit gives the services the largest batches that they may have.
func (p *split) limit(services []models.Service) {
	for i := range services {
		services[i].MaxBatch = p.largest[i]
	}
}

// pack returns the bins for so many times the rates: as many devices as a service fills
// alone, in batches of which one may wait for another, and what is left together with
// others, the fullest first, each where it leaves the least room.
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
		if float64(batch)/left < s.took(batch) { // too small a batch to keep up: it has a device to itself
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

// with returns both bins as one, whose cycle is the shorter of theirs.
func (b *bin) with(o *bin) bin {
	both := bin{min(b.cycle, o.cycle), slices.Concat(b.shares, o.shares)}
	for i := range both.shares {
		s := &both.shares[i]
		s.batch = max(int(math.Ceil(s.rate*both.cycle-1e-9)), 1)
	}
	return both
}

// turns is the largest batch of which one may wait for another.
func (s *demand) turns() int {
	return s.largest(func(took float64, _ int) bool { return 2*took <= s.target })
}

// largest returns the largest batch that fits, at least 1.
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
