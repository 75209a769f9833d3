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

// statement is a published comparison of Abacus with others: by how much it is better
// than each policy, in percent of the policy's value.
type statement struct {
	section string
	against map[string]float64
}
