package overlap

import (
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/models"
)

// policy is the rule that chooses the next group. It keeps no state.
type policy interface {
	// key places work among the other work of its priority: the least key
	// is the most urgent. It is asked again only when the work changes.
	key(w work) time.Duration

	// choose adds spans to the group. It sees the most urgent work of each
	// service, in rank order.
	choose(d *decision)
}

// triager is a policy before whose choices a triage is made.
type triager interface{ triages() overlap }

// work is a waiting query or a paused batch, seen by a policy.
type work struct {
	arrival  time.Duration
	deadline time.Duration
	left     models.Span // all operators that are left
	predict  *prediction
}

// named is a policy as a configuration chooses it.
type named struct {
	Name    string
	Summary string // one sentence
	policy  policy
}

var policies = []named{
	{"overlap", "Overlap by headroom where it is predicted to gain, with merging, margins and best effort.", overlap{}},
	{"abacus", "The published algorithm: overlap by headroom, as far as the prediction allows. It merges where services allow it, which the paper does not.", abacus{}},
	{"edf", "Earliest deadline first, one batch at a time.", edf{}},
	{"fcfs", "First come, first served, one batch at a time.", fcfs{}},
	{"sjf", "Shortest job first by predicted time left, one batch at a time.", sjf{}},
	{"static", "As edf, each service in its own share of a device, which MPS keeps apart; the baseline that needs no prediction of groups.", static{}},
}

// Policies lists the policies of the daemon. Config.Policy may also name one of Comparisons.
func Policies() []named { return slices.Clone(policies) }

func policyNamed(name string) policy {
	if names, found := strings.CutPrefix(name, "overlap-without:"); found {
		return without(names)
	}
	for _, p := range slices.Concat(policies, comparisons) {
		if p.Name == name {
			return p.policy
		}
	}
	return nil
}

// sequential runs the most urgent batch alone, with all its operators. It is
// what the sequential policies share.
type sequential struct{}

func (sequential) choose(d *decision) {
	if len(d.settle(1)) > 0 {
		d.merge(0)
		d.addWhole(0)
	}
}

// fcfs serves in the order of arrival over all services.
type fcfs struct{ sequential }

func (fcfs) key(w work) time.Duration { return w.arrival }

// edf serves the earliest deadline first.
type edf struct{ sequential }

func (edf) key(w work) time.Duration { return w.deadline }

// static is for devices that are each the share of one service of a GPU (MPS percentages).
// Which services are on which, and how large a share is, is the business of whoever makes
// the devices: nothing is decided between shares.
type static struct{ edf }

// sjf serves what has the least predicted time left, as predicted when the
// query was queued or the batch paused. What is unknown goes first, and so
// becomes known.
type sjf struct{ sequential }

func (sjf) key(w work) time.Duration { return w.predict.alone(w.left).Latency }

// abacus is the algorithm of the paper, section 6, to the letter. The query
// with the least headroom gets all its operators. The others follow in the
// order of their headrooms as long as the predicted latency is within the
// least: first whole, then as many operators as fit of the first that does
// not. It does not ask whether overlap gains anything, and it trusts the
// prediction. What the paper does not have is merging: where services allow
// it, batches take the places of queries.
type abacus struct{ edf }

func (abacus) choose(d *decision) {
	settled := 1
	for i := range d.candidates {
		if d.candidates[i].service.MaxBatch > 1 {
			settled = maxCandidates
		}
	}
	first := d.settle(settled)
	if len(first) == 0 {
		return
	}
	for i := range first {
		d.merge(i)
	}
	d.lax = true
	d.addWhole(0)
	if first := &d.candidates[0]; d.device.alone || first.explores || first.solo.Latency == 0 {
		return
	}
	var found models.Estimate
	fits := func(_ int, e models.Estimate) bool {
		if e.Latency == 0 || d.at+e.Latency > d.limit {
			return false
		}
		found = e
		return true
	}
	n := min(len(d.candidates), maxCandidates)
	last := d.search(0, n-1, func(last int) {
		d.ask.add(d.spans)
		for i := 1; i <= last; i++ {
			d.ask.extend(d.candidates[i].rest)
		}
	}, fits)
	for i := 1; i <= last; i++ {
		d.add(i, d.candidates[i].rest.End, found, 0)
	}
	if last++; last < n {
		c := &d.candidates[last]
		end := d.search(c.rest.Start, c.rest.End-1, func(end int) { d.ask.add(d.spans, c.upTo(end)) }, fits)
		if end > c.rest.Start {
			d.add(last, end, found, 0)
		}
	}
}
