package reproduce

import (
	"slices"
	"strings"
	"time"
)

// deployment is services that share a device.
type deployment struct {
	models  []string
	targets []time.Duration // by model
	sizes   []int
	seqLens []int // of the sequence model
}

func (d *deployment) label() string { return label(d.models) }

// The inputs of the paper's table 1, and those of the measured quadruplets.
var (
	pairSizes   = []int{4, 8, 16, 32}
	pairSeqLens = []int{8, 16, 32, 64}
	quadSizes   = []int{1, 2}
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
			d := deployment{models: []string{shortNames[i].model, shortNames[j].model}, sizes: pairSizes, seqLens: pairSeqLens}
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

// manyTarget is the target of three and of four services.
type targetRule func(models []string) []time.Duration

// beyondPairs returns the triplets and the quadruplet of section 7.4.
func beyondPairs(sizes, seqLens []int, target targetRule) []deployment {
	var list []deployment
	add := func(models []string) {
		list = append(list, deployment{models: models, targets: target(models), sizes: sizes, seqLens: seqLens})
	}
	for left := len(quadModels) - 1; left >= 0; left-- {
		add(slices.Delete(slices.Clone(quadModels), left, left+1))
	}
	add(slices.Clone(quadModels))
	return list
}

// key names the models of a deployment whatever their order is.
func key(models []string) string {
	sorted := slices.Sorted(slices.Values(models))
	return strings.Join(sorted, "\n")
}
