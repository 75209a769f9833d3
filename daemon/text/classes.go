package text

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/text/export"
)

// classifies reports whether the outputs of a model are scores rather than embeddings: it has
// none with a vector for each token, and its own pooled output is not asked for.
func classifies(sig *query.Signature, t *export.Text) bool {
	perToken := func(p query.Port) bool { return p.AnyRank || len(p.Dims) == 3 }
	return t.Pooling != export.PoolNone && !slices.ContainsFunc(sig.Outputs, perToken)
}

// class is a class of a classifier with the score of a text, between 0 and 1.
type class struct {
	label string
	score float32
}

// classes returns the classes of a row of scores, the best first. The scores of all classes
// add up to 1, unless there is only one or the model says that they are independent.
func classes(row []float32, t *export.Text) []class {
	list := make([]class, len(row))
	most, sum := slices.Max(row), 0.0
	for _, v := range row {
		sum += math.Exp(float64(v - most))
	}
	for i, v := range row {
		// Classes without a name are numbered, as exporters do.
		list[i].label = "LABEL_" + strconv.Itoa(i)
		if i < len(t.Labels) {
			list[i].label = t.Labels[i]
		}
		if len(row) == 1 || t.Independent {
			list[i].score = float32(sigmoid(v))
		} else {
			list[i].score = float32(math.Exp(float64(v-most)) / sum)
		}
	}
	slices.SortStableFunc(list, func(a, b class) int { return cmp.Compare(b.score, a.score) })
	return list
}

// sigmoid returns a score between 0 and 1.
func sigmoid(v float32) float64 { return 1 / (1 + math.Exp(-float64(v))) }

// Relevance returns the score between 0 and 1 of a reranker's row, which must have one number.
func Relevance(row []float32) (float64, *query.Error) {
	if len(row) != 1 {
		return 0, invalidModel("the model has %d scores for a text, and a reranker has one: ask a reranker", len(row))
	}
	return sigmoid(row[0]), nil
}
