package reproduce

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/training"
)

// deployment is services that share a device.
type deployment struct {
	models  []string
	targets []time.Duration // by model
	sizes   [][]int         // batch sizes of queries, by model
	seqLens []int           // sequence model only
}

func (d *deployment) label() string { return label(d.models) }

// caseName is what figures call the deployment.
func (d *deployment) caseName() string {
	if len(d.models) > 3 {
		return manyCase(len(d.models))
	}
	return d.label()
}

// manyCase names the mean over deployments of so many services.
func manyCase(services int) string {
	if services == 3 {
		return "mean of triplets"
	}
	return "quadruplet"
}

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
	calmLoad = 50
	fullLoad = 100
)

// fullTargets are those that differ at the full load.
var fullTargets = map[string]int{"VGG16+VGG19": 40}

// pairs returns the authors' pairs whose models were all measured together.
func pairs(load int, has func(models []string) bool) []deployment {
	var list []deployment
	at := 0
	for i := range shortNames {
		for j := i + 1; j < len(shortNames); j++ {
			d := deployment{models: []string{shortNames[i].model, shortNames[j].model}, sizes: [][]int{pairSizes, pairSizes}, seqLens: pairSeqLens}
			millis := pairTargets[at]
			at++
			if other, ok := fullTargets[d.label()]; ok && load == fullLoad {
				millis = other
			}
			d.targets = slices.Repeat([]time.Duration{time.Duration(millis) * time.Millisecond}, 2)
			if has(d.models) {
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
func beyondPairs(sizes map[string][]int) []deployment {
	var list []deployment
	add := func(models []string) {
		d := deployment{models: models, targets: slices.Repeat([]time.Duration{manyTarget}, len(models)), seqLens: pairSeqLens}
		for _, m := range models {
			d.sizes = append(d.sizes, sizes[m])
		}
		list = append(list, d)
	}
	for left := len(quadModels) - 1; left >= 0; left-- {
		add(slices.Delete(slices.Clone(quadModels), left, left+1))
	}
	add(slices.Clone(quadModels))
	return list
}

// sizesBeyondPairs are those of the paper's table 1 with which a model was
// measured in groups of more than two, or all such if it has none of these.
func sizesBeyondPairs(d *training.Dataset) map[string][]int {
	measured := map[string][]int{}
	for i := range d.Rows {
		spans := d.Rows[i].Group.Spans
		if len(spans) < 3 {
			continue
		}
		for _, s := range spans {
			if m := d.Models[s.Service].Name; !slices.Contains(measured[m], s.Size) {
				measured[m] = append(measured[m], s.Size)
			}
		}
	}
	for m, sizes := range measured {
		slices.Sort(sizes)
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
