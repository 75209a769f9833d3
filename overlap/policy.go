package overlap

import (
	"slices"
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
type triager interface{ triages() }

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
	{"fcfs", "First come, first served, one batch at a time.", fcfs{}},
	{"sjf", "Shortest job first by predicted time left, one batch at a time.", sjf{}},
	{"edf", "Earliest deadline first, one batch at a time.", edf{}},
	{"clockwork", "Earliest deadline first, one batch at a time, never started if it might end late.", clockwork{}},
	{"abacus", "The published algorithm: overlap by headroom, as far as the prediction allows.", abacus{}},
	{"overlap", "Overlap by headroom where it is predicted to gain, with merging, margins and best effort.", overlap{}},
}

// Policies lists the policies that Config.Policy may name.
func Policies() []named { return slices.Clone(policies) }

func policyNamed(name string) policy {
	for _, p := range policies {
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

// sjf serves what has the least predicted time left, as predicted when the
// query was queued or the batch paused. What is unknown goes first, and so
// becomes known.
type sjf struct{ sequential }

func (sjf) key(w work) time.Duration { return w.predict.alone(w.left).Latency }
