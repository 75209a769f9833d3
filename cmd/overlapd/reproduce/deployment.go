package reproduce

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// deployment is services that share a device.
type deployment struct {
	models  []string
	load    float64       // queries per second over all services
	target  time.Duration // of every service
	sizes   [][]int       // batch sizes of queries, by model
	seqLens []int         // sequence model only
}

func (d *deployment) label() string { return label(d.models) }

// The inputs of the paper's table 1.
var (
	pairSizes   = []int{4, 8, 16, 32}
	pairSeqLens = []int{8, 16, 32, 64}
)

// pairTargets are those of the authors' pairs: resnet50 with each later model
// of table 1, resnet101 with each later one, and so on.
var pairTargets = []int{
	100, 150, 100, 50, 50, 75,
	160, 150, 90, 80, 130,
	150, 150, 150, 150,
	80, 80, 80,
	30, 60,
	60,
}

// Loads of the authors' runs, queries per second over all services.
const (
	calmLoad = 50.0
	fullLoad = 100.0
)

var loads = []float64{calmLoad, fullLoad}

// pairs returns the authors' pairs whose models were all measured together.
func (s *stock) pairs(loads ...float64) []deployment {
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

// allPairs are those of the authors, measured or not.
func allPairs(loads ...float64) (list []deployment) {
	for _, load := range loads {
		targets := pairTargets
		for i, first := range shortNames {
			for _, second := range shortNames[i+1:] {
				d := deployment{models: []string{first.model, second.model}, load: load, sizes: [][]int{pairSizes, pairSizes}, seqLens: pairSeqLens}
				d.target = time.Duration(targets[0]) * time.Millisecond
				targets = targets[1:]
				if load == fullLoad && d.label() == "VGG16+VGG19" {
					d.target = 40 * time.Millisecond
				}
				list = append(list, d)
			}
		}
	}
	return list
}

// quadModels are those of the paper's section 7.4.
var quadModels = []string{"resnet101", "resnet152", "vgg19", "bert"}

// manyTarget is the target of three and of four services, that of section 7.6:
// the paper gives none for section 7.4.
const manyTarget = 100 * time.Millisecond

// beyondPairs returns the triplets and, last, the quadruplet of section 7.4.
func beyondPairs(load float64, sizes map[string][]int) []deployment {
	list := make([]deployment, 0, len(quadModels)+1)
	for left := range quadModels {
		list = append(list, deployment{models: slices.Delete(slices.Clone(quadModels), left, left+1)})
	}
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

// quadruplet returns the one of section 7.4 at full load.
func (s *stock) quadruplet() *deployment {
	return &beyondPairs(fullLoad, s.sizes())[len(quadModels)]
}

// sizes are those of the paper's table 1 with which a model was
// measured in groups of more than two, or all such if it has none of these.
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
		usual := slices.DeleteFunc(slices.Clone(sizes), func(size int) bool { return !slices.Contains(pairSizes, size) })
		if len(usual) > 0 {
			sizes = usual
		}
		measured[m] = sizes
	}
	return measured
}

// unusualSizes names the models whose sizes differ from those of the table.
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

// key names the models of a deployment whatever their order is.
func key(models []string) string {
	sorted := slices.Sorted(slices.Values(models))
	return strings.Join(sorted, "\n")
}
