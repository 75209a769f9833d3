package reproduce

import (
	"fmt"
	"strings"
)

// The models of the paper's table 1, in its order, and how its authors
// shorten their names.
var shortNames = []struct{ short, model string }{
	{"Res50", "resnet50"},
	{"Res101", "resnet101"},
	{"Res152", "resnet152"},
	{"IncepV3", "inception_v3"},
	{"VGG16", "vgg16"},
	{"VGG19", "vgg19"},
	{"Bert", "bert"},
}

// sequenceModel is the one model whose queries have a sequence length.
const sequenceModel = "bert"

// colocation reads the name of models that share a device, such as
// Res50+Bert or Res50Bert.
func colocation(name string) ([]string, error) {
	var list []string
	rest := name
	for rest != "" {
		model := ""
		for _, n := range shortNames {
			if after, ok := strings.CutPrefix(rest, n.short); ok {
				model, rest = n.model, after
				break
			}
		}
		if model == "" {
			return nil, fmt.Errorf("%.60q does not name models as Res50+Bert does", name)
		}
		list = append(list, model)
		if after, ok := strings.CutPrefix(rest, "+"); ok && after != "" {
			rest = after
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("there is no name of a co-location")
	}
	return list, nil
}

// short shortens the name of a model as the paper does.
func short(model string) string {
	for _, n := range shortNames {
		if n.model == model {
			return n.short
		}
	}
	return model
}

// label names models that share a device, as the paper's figures do.
func label(list []string) string {
	parts := make([]string, len(list))
	for i, m := range list {
		parts[i] = short(m)
	}
	return strings.Join(parts, "+")
}

// What the paper gives in words; its figures show no numbers.
// Abacus, SC '21.

// paperReductions are by how much Abacus is below a policy, in percent of the
// policy's value, mean over the pairs.
type paperReductions map[string]float64

// statement is one published comparison of Abacus with the others.
type statement struct {
	section string
	against paperReductions
}

var (
	// paperTails are of the 99th percentile at 50 queries per second.
	paperTails = statement{"7.2", paperReductions{"fcfs": 23.1, "sjf": 34.1, "edf": 23.8}}

	// paperCalmViolations are of violations at 50 queries per second.
	paperCalmViolations = statement{"7.2", paperReductions{"fcfs": 38.8, "sjf": 71.0, "edf": 44.0}}

	// paperFullViolations are of violations at 100 queries per second.
	paperFullViolations = statement{"7.3", paperReductions{"fcfs": 55.7, "sjf": 63.2, "edf": 54.3}}

	// paperThroughputs are by how much more is answered at 100 queries per
	// second.
	paperThroughputs = statement{"7.3", paperReductions{"fcfs": 25.7, "sjf": 38.1, "edf": 25.7}}

	// Section 7.4, by the number of services.
	paperManyTails = map[int]statement{
		3: {"7.4", paperReductions{"fcfs": 21.3, "sjf": 35.3, "edf": 20.8}},
		4: {"7.4", paperReductions{"fcfs": 16.1, "sjf": 34.3, "edf": 21.1}},
	}
	paperManyViolations = map[int]statement{
		3: {"7.4", paperReductions{"fcfs": 87.7, "sjf": 93.4, "edf": 85.3}},
		4: {"7.4", paperReductions{"fcfs": 87.7, "sjf": 93.4, "edf": 85.3}},
	}
	paperManyThroughputs = map[int]statement{
		3: {"7.4", paperReductions{"fcfs": 51.0, "sjf": 72.3, "edf": 57.0}},
		4: {"7.4", paperReductions{"fcfs": 38.4, "sjf": 53.9, "edf": 63.4}},
	}

	// paperCluster is by how much more than Clockwork is answered, section
	// 7.6.
	paperCluster = statement{"7.6", paperReductions{"clockwork": 17.8}}
)

// Errors of prediction in percent, section 5.5.
var (
	paperOwnErrors     = map[string]float64{techniqueLinear: 23.5, techniqueVectors: 21.5, techniquePaper: 5.5}
	paperUnifiedErrors = map[string]float64{techniqueLinear: 30.1, techniqueVectors: 29.2, techniquePaper: 5.7}
	paperQuadError     = 6.4
)

// Durations of section 7.7, milliseconds.
const (
	paperOneWay      = 0.066 // one call that asks about one group
	paperMoreWays    = 0.088 // one call that asks about two or more
	paperDecision    = 0.26  // a decision with four ways
	paperPredictions = 3     // most decisions take fewer calls
)
