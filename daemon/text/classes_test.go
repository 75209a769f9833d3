package text

import (
	"math"
	"testing"

	"github.com/overlapd/overlapd/text/export"
)

func TestClasses(t *testing.T) {
	labels := []string{"bad", "good"}
	for name, test := range map[string]struct {
		text export.Text
		row  []float32
		want []class
	}{
		"best first":  {export.Text{Labels: labels}, []float32{0, 1000}, []class{{"good", 1}, {"bad", 0}}},
		"equal":       {export.Text{Labels: labels}, []float32{3, 3}, []class{{"bad", 0.5}, {"good", 0.5}}},
		"independent": {export.Text{Labels: labels, Independent: true}, []float32{0, 1000}, []class{{"good", 1}, {"bad", 0.5}}},
		"one":         {export.Text{}, []float32{0}, []class{{"LABEL_0", 0.5}}},
	} {
		got := classes(test.row, &test.text)
		for i, c := range got {
			if len(got) != len(test.want) || c.label != test.want[i].label || math.Abs(float64(c.score-test.want[i].score)) > 1e-6 {
				t.Errorf("%s: got %v, want %v", name, got, test.want)
			}
		}
	}
}
