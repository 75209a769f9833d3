package reproduce

import (
	"fmt"
	"strings"
)

// shortNames are the models of the paper's table 1, in its order, with the authors' short names.
var shortNames = []struct{ short, model string }{
	{"Res50", "resnet50"},
	{"Res101", "resnet101"},
	{"Res152", "resnet152"},
	{"IncepV3", "inception_v3"},
	{"VGG16", "vgg16"},
	{"VGG19", "vgg19"},
	{"Bert", "bert"},
}

// sequenceModel is the only model whose queries have a sequence length.
const sequenceModel = "bert"

// colocation parses the name of a co-location, such as Res50+Bert or Res50Bert, and returns its
// models.
func colocation(name string) ([]string, error) {
	var list []string
	rest := name
	for rest != "" {
		model := ""
		for _, n := range shortNames {
			// No short name is the beginning of another one.
			if after, ok := strings.CutPrefix(rest, n.short); ok {
				model, rest = n.model, after
				break
			}
		}
		if model == "" {
			return nil, fmt.Errorf("%.60q does not name models; give names as in Res50+Bert", name)
		}
		list = append(list, model)
		if after, ok := strings.CutPrefix(rest, "+"); ok && after != "" {
			rest = after
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the co-location has no name; give one as in Res50+Bert")
	}
	return list, nil
}

// short returns the paper's short name of a model.
func short(model string) string {
	for _, n := range shortNames {
		if n.model == model {
			return n.short
		}
	}
	return model
}

// label returns the name of a co-location in the paper's figures.
func label(list []string) string {
	parts := make([]string, len(list))
	for i, m := range list {
		parts[i] = short(m)
	}
	return strings.Join(parts, "+")
}

// The paper (Abacus, SC '21) states numbers in words. Its figures show none.

// statement is a published comparison of Abacus with other policies: the improvement over each of
// them, in percent of that policy's value.
type statement struct {
	// section is the paper's section with the statement.
	section string

	// against maps the other policies to the improvement over them.
	against map[string]float64
}
