package reserve

import (
	"cmp"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// maxEstimates is the highest number of estimates of stages that are kept. Each is asked for again
// when such a stage has run.
const maxEstimates = 1 << 13

// asking is a stage of a batch on a kind of device, whose estimate is kept.
type asking struct {
	Service      models.ServiceID
	Start, End   int
	Size, SeqLen int
	Kind         int
}

// estimated is an estimate that is asked for again if it is stale.
type estimated struct {
	models.Estimate
	Stale bool `json:",omitempty"`
}

// Known is an estimate in the form that a snapshot has.
type Known struct {
	asking
	estimated
}

// estimates are what is known of stages on the devices of a pool.
type estimates struct {
	pool pool

	// kinds holds for each device the first device that is like it.
	kinds []int
	known map[asking]estimated
}

// Estimates returns the estimates that are kept, sorted by what they are of.
func (x *estimates) Estimates() (all []Known) {
	for of, e := range x.known {
		all = append(all, Known{of, e})
	}
	slices.SortFunc(all, func(a, b Known) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End),
			cmp.Compare(a.Size, b.Size), cmp.Compare(a.SeqLen, b.SeqLen), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

// Restore keeps the estimates of a snapshot.
func (x *estimates) Restore(all []Known) {
	for _, e := range all {
		x.known[e.asking] = e.estimated
	}
}

// estimate returns the estimate of a stage that runs alone on a device.
func (x *estimates) estimate(device int, span models.Span) models.Estimate {
	key := asking{span.Service, span.Start, span.End, span.Size, span.SeqLen, x.kinds[device]}
	if e, ok := x.known[key]; ok && !e.Stale {
		return e.Estimate
	}
	if len(x.known) >= maxEstimates {
		clear(x.known)
	}
	e := x.pool.Alone(device, span)
	x.known[key] = estimated{Estimate: e}
	return e
}

// Forget marks as stale the estimate of the stage that a batch is in, which has just run on a device.
func (x *estimates) Forget(w *Way, service models.ServiceID, device, size, seqLen int) {
	if len(w.Legs) == 0 {
		return
	}
	start := 0
	if w.Leg > 0 {
		start = w.Legs[w.Leg-1].End
	}
	key := asking{service, start, w.At().End, size, seqLen, x.kinds[device]}
	if e, ok := x.known[key]; ok {
		e.Stale = true
		x.known[key] = e
	}
}
