package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// policyInfo describes a policy to a person.
type policyInfo struct {
	Name    string
	Summary string // one sentence
}

// policy is the rule that chooses the next group. It keeps no state.
type policy interface {
	info() policyInfo

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

// rest returns the predicted time of what is left, alone on the device, or 0
// if that is unknown.
func (w work) rest() time.Duration { return w.predict.alone(w.left).Latency }

var policies = [...]policy{fcfs{}, sjf{}, edf{}, clockwork{}, abacus{}, overlap{}}

// Policies lists the policies that Config.Policy may name.
func Policies() []policyInfo {
	infos := make([]policyInfo, len(policies))
	for i, p := range policies {
		infos[i] = p.info()
	}
	return infos
}

func policyNamed(name string) policy {
	for _, p := range policies {
		if p.info().Name == name {
			return p
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
