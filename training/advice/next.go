package advice

import (
	"cmp"
	"slices"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/training"
)

// probesPerService is the number of pairs in which each model is measured to learn how it
// behaves with others. It does not depend on the number of services.
const probesPerService = 2

// nextPair is a pair of models that is worth measuring.
type nextPair struct {
	Models [2]string `json:"models"`
	Reason string    `json:"reason"`
}

// cost is the effort of measuring. Dividing the services first keeps it proportional to their
// number: only pairs that share a device are measured, plus a few probes of each service
// (Abacus, section 7.8).
type cost struct {
	GroupsPerPair   int     `json:"groups_per_pair"`
	SecondsPerGroup float64 `json:"seconds_per_group"`
	// Repeats is the number of runs per group. It is assumed unless RepeatsKnown is set.
	Repeats      int  `json:"repeats"`
	RepeatsKnown bool `json:"repeats_known"`
	// AllPairs is for every service with every other, Division for the pairs that share a device,
	// and Next for the pairs that remain to be measured.
	AllPairs measuringCost `json:"all_pairs"`
	Division measuringCost `json:"division"`
	Next     measuringCost `json:"next"`
}

// measuringCost is the effort of measuring some pairs.
type measuringCost struct {
	Pairs  int     `json:"pairs"`
	Groups int     `json:"groups"`
	Hours  float64 `json:"hours"`
}

// next returns the pairs to measure: those that share a device, and up to probesPerService
// probes of each model. Models about which nothing is known come first.
func (p *panel) next(devices [][]int) []nextPair {
	n := nextPairs{panel: p, degree: make([]int, len(p.services)), list: []nextPair{}}
	for i, m := range p.model {
		if m >= 0 {
			n.degree[i] = p.fit.measured[m]
		}
	}
	for i := range p.services {
		if n.degree[i] == 0 {
			n.probe(i, "no groups of "+p.services[i].Model+" with other models are known")
		}
	}
	for _, members := range devices {
		for i, b := range members {
			for _, a := range members[:i] {
				n.add(a, b, "they share a device in this division")
			}
		}
	}
	// Probes come last, because the pairs above may already be enough.
	for i := range p.services {
		n.probe(i, "few groups of "+p.services[i].Model+" with other models are known")
	}
	return n.list
}

// nextPairs collects pairs to measure.
type nextPairs struct {
	*panel
	// degree counts the pairs in which each service's model was or will be measured.
	degree []int
	list   []nextPair
}

// add adds a pair unless it is measured or listed already. A model cannot be measured with itself.
func (n *nextPairs) add(a, b int, reason string) {
	models := [2]string{n.services[a].Model, n.services[b].Model}
	slices.Sort(models[:])
	// Pairs are of models: services with one model need only one measurement.
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

// probe adds pairs of a service with the best-known others, until it has enough. Well-known
// models make the affinity of the service most certain.
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

// cost returns the effort of measuring, assuming the pace of the dataset.
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
	// Groups of other models are assumed to take as long as the mean row.
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

// of returns the effort of measuring that many pairs.
func (c *cost) of(pairs int) measuringCost {
	groups := pairs * c.GroupsPerPair
	return measuringCost{pairs, groups, float64(groups) * c.SecondsPerGroup / 3600}
}
