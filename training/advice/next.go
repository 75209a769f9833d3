package advice

import (
	"cmp"
	"slices"

	"github.com/overlapd/overlapd/stats"
	"github.com/overlapd/overlapd/training"
)

// probesPerService is how many pairs of a model are measured to know how it
// gets on with others, whatever the number of services.
const probesPerService = 2

// nextPair is a pair of models that is worth measuring.
type nextPair struct {
	Models [2]string `json:"models"`
	Reason string    `json:"reason"`
}

// Cost is what measuring takes. Dividing the services keeps it in proportion
// to their number: only pairs that share a device are measured, and a few
// probes of each service (Abacus, section 7.8).
type cost struct {
	GroupsPerPair   int           `json:"groups_per_pair"`
	SecondsPerGroup float64       `json:"seconds_per_group"`
	Repeats         int           `json:"repeats"`       // runs a group
	RepeatsKnown    bool          `json:"repeats_known"` // else the number is assumed
	AllPairs        measuringCost `json:"all_pairs"`     // every service with every other
	Division        measuringCost `json:"division"`      // those that share a device
	Next            measuringCost `json:"next"`          // those that are left to be measured
}

// measuringCost is what measuring some pairs takes.
type measuringCost struct {
	Pairs  int     `json:"pairs"`
	Groups int     `json:"groups"`
	Hours  float64 `json:"hours"`
}

// next returns the pairs to be measured: two probes of each model at most, and
// what shares a device.
func (p *panel) next(devices [][]int) []nextPair {
	n := nextPairs{panel: p, degree: make([]int, len(p.services)), list: []nextPair{}}
	for i, m := range p.model {
		if m >= 0 {
			n.degree[i] = p.fit.measured[m]
		}
	}
	for i := range p.services {
		if n.degree[i] == 0 {
			n.probe(i, "nothing is known of "+p.services[i].Model+" with others")
		}
	}
	for _, members := range devices {
		for i, b := range members {
			for _, a := range members[:i] {
				n.add(a, b, "they share a device in this division")
			}
		}
	}
	for i := range p.services {
		n.probe(i, "little is known of "+p.services[i].Model+" with others")
	}
	return n.list
}

// nextPairs collects pairs to be measured.
type nextPairs struct {
	*panel
	degree []int // pairs that each service's model was or will be measured in
	list   []nextPair
}

// add adds a pair unless it is measured, or stands there already. A model
// cannot be measured with itself.
func (n *nextPairs) add(a, b int, reason string) {
	models := [2]string{n.services[a].Model, n.services[b].Model}
	slices.Sort(models[:])
	taken := slices.ContainsFunc(n.list, func(p nextPair) bool { return p.Models == models })
	if taken || models[0] == models[1] || n.Pairs[a][b].Measured {
		return
	}
	n.list = append(n.list, nextPair{models, reason})
	for i, s := range n.services {
		if s.Model == models[0] || s.Model == models[1] {
			n.degree[i]++
		}
	}
}

// probe adds pairs of a service with those that most is known of, until it has
// enough.
func (n *nextPairs) probe(service int, reason string) {
	others := make([]int, len(n.services))
	for i := range others {
		others[i] = i
	}
	slices.SortStableFunc(others, func(a, b int) int { return cmp.Compare(n.degree[b], n.degree[a]) })
	for _, o := range others {
		if n.degree[service] >= probesPerService {
			return
		}
		n.add(service, o, reason)
	}
}

// cost returns what measuring takes, at the pace of the dataset.
func (p *panel) cost(d *training.Dataset, devices [][]int) cost {
	c := cost{GroupsPerPair: defaultGroups, Repeats: defaultRepeats}
	var perPair, repeats []float64
	for _, s := range p.Sets {
		if len(s.members) == 2 && s.Groups >= fewestGroups {
			perPair = append(perPair, float64(s.Groups))
		}
	}
	if len(perPair) > 0 {
		c.GroupsPerPair = int(stats.Median(perPair))
	}
	micros := 0.0
	for _, r := range d.Rows {
		micros += r.Mean / float64(len(d.Rows))
		if r.Repeats > 0 {
			repeats = append(repeats, float64(r.Repeats))
		}
	}
	if len(repeats) > 0 {
		c.Repeats, c.RepeatsKnown = int(stats.Median(repeats)), true
	}
	c.SecondsPerGroup = micros * float64(c.Repeats) / 1e6
	within := 0
	for _, members := range devices {
		within += len(members) * (len(members) - 1) / 2
	}
	c.AllPairs = c.of(len(p.services) * (len(p.services) - 1) / 2)
	c.Division = c.of(within)
	c.Next = c.of(len(p.Next))
	return c
}

func (c *cost) of(pairs int) measuringCost {
	groups := pairs * c.GroupsPerPair
	return measuringCost{pairs, groups, float64(groups) * c.SecondsPerGroup / 3600}
}
