package reproduce

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// deployment is a set of services that share a device.
type deployment struct {
	// models are the models of the services, in the order of sizes.
	models []string

	// load is in queries per second over all services.
	load float64

	// target is the target of every service.
	target time.Duration

	// sizes are the batch sizes of queries, by model.
	sizes [][]int

	// seqLens are the sequence lengths of the sequence model's queries.
	seqLens []int
}

// label returns the name of the deployment.
func (d *deployment) label() string { return label(d.models) }

// The inputs of the paper's table 1 (Abacus).
var (
	pairSizes   = []int{4, 8, 16, 32}
	pairSeqLens = []int{8, 16, 32, 64}
)

// pairTargets are the targets of the authors' pairs in milliseconds: of resnet50 with each later
// model of table 1, of resnet101 with each later one, and so on.
var pairTargets = []int{
	100, 150, 100, 50, 50, 75,
	160, 150, 90, 80, 130,
	150, 150, 150, 150,
	80, 80, 80,
	30, 60,
	60,
}

// The loads of the authors' runs, in queries per second over all services.
const (
	calmLoad = 50.0
	fullLoad = 100.0
)

// loads lists them.
var loads = []float64{calmLoad, fullLoad}

// pairs returns those of the authors' pairs whose models were measured together.
func (s *stock) pairs(loads ...float64) []deployment {
	// A pair was measured if it occurs as a group.
	known := map[string]bool{}
	for i := range s.measured.Rows {
		var names []string
		for _, span := range s.measured.Rows[i].Group.Spans {
			names = append(names, s.measured.Models[span.Service].Name)
		}
		known[key(names)] = true
	}
	return slices.DeleteFunc(allPairs(loads...), func(d deployment) bool { return !known[key(d.models)] })
}

// allPairs returns all of the authors' pairs, whether measured or not.
func allPairs(loads ...float64) (list []deployment) {
	for _, load := range loads {
		targets := pairTargets
		for i, first := range shortNames {
			for _, second := range shortNames[i+1:] {
				d := deployment{models: []string{first.model, second.model}, load: load, sizes: [][]int{pairSizes, pairSizes}, seqLens: pairSeqLens}
				d.target = time.Duration(targets[0]) * time.Millisecond
				targets = targets[1:]
				// The authors lowered this target at full load.
				if load == fullLoad && d.label() == "VGG16+VGG19" {
					d.target = 40 * time.Millisecond
				}
				list = append(list, d)
			}
		}
	}
	return list
}

// quadModels are the models of section 7.4.
var quadModels = []string{"resnet101", "resnet152", "vgg19", "bert"}

// manyTarget is the target of three and of four services. It is that of section 7.6, because the
// paper gives none for section 7.4.
const manyTarget = 100 * time.Millisecond

// beyondPairs returns the triplets of section 7.4 and, last, the quadruplet.
func beyondPairs(load float64, sizes map[string][]int) []deployment {
	list := make([]deployment, 0, len(quadModels)+1)
	for left := range quadModels {
		list = append(list, deployment{models: slices.Delete(slices.Clone(quadModels), left, left+1)})
	}
	// The first triplet then has the first three models.
	slices.Reverse(list)
	list = append(list, deployment{models: quadModels})
	for i := range list {
		d := &list[i]
		d.load, d.target, d.seqLens = load, manyTarget, pairSeqLens
		for _, m := range d.models {
			d.sizes = append(d.sizes, sizes[m])
		}
	}
	return list
}

// quadruplet returns the quadruplet of section 7.4 at full load.
func (s *stock) quadruplet() *deployment {
	return &beyondPairs(fullLoad, s.sizes())[len(quadModels)]
}

// sizes returns the batch sizes of each model that were measured in groups of more than two models:
// those of table 1 or, if a model has none of these, all.
func (s *stock) sizes() map[string][]int {
	measured := map[string][]int{}
	for i := range s.measured.Rows {
		if spans := s.measured.Rows[i].Group.Spans; len(spans) > 2 {
			for _, span := range spans {
				m := s.measured.Models[span.Service].Name
				measured[m] = append(measured[m], span.Size)
			}
		}
	}
	for m, sizes := range measured {
		slices.Sort(sizes)
		sizes = slices.Compact(sizes)
		// Sizes of table 1 are preferred, so that figures are comparable with those of pairs.
		usual := slices.DeleteFunc(slices.Clone(sizes), func(size int) bool { return !slices.Contains(pairSizes, size) })
		if len(usual) > 0 {
			sizes = usual
		}
		measured[m] = sizes
	}
	return measured
}

// unusualSizes returns a sentence about the models whose sizes differ from those of table 1.
func unusualSizes(sizes map[string][]int) string {
	var parts []string
	for _, m := range quadModels {
		if !slices.Equal(sizes[m], pairSizes) {
			parts = append(parts, fmt.Sprintf("%s %v", short(m), sizes[m]))
		}
	}
	if len(parts) == 0 {
		return "Batch sizes are those of the paper's table 1."
	}
	return fmt.Sprintf("Batch sizes are those of the paper's table 1, but for %s: in groups of more than two models, others were not measured. The queries of the paper were larger.", strings.Join(parts, ", "))
}

// key identifies the models of a deployment regardless of their order.
func key(models []string) string {
	sorted := slices.Sorted(slices.Values(models))
	return strings.Join(sorted, "\n")
}
