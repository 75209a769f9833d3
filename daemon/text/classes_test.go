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
		want []Class
	}{
		"best first":  {export.Text{Labels: labels}, []float32{0, 1000}, []Class{{"good", 1}, {"bad", 0}}},
		"equal":       {export.Text{Labels: labels}, []float32{3, 3}, []Class{{"bad", 0.5}, {"good", 0.5}}},
		"independent": {export.Text{Labels: labels, Independent: true}, []float32{0, 1000}, []Class{{"good", 1}, {"bad", 0.5}}},
		"one":         {export.Text{}, []float32{0}, []Class{{"LABEL_0", 0.5}}},
	} {
		got := Classes(test.row, &test.text)
		for i, c := range got {
			if len(got) != len(test.want) || c.Label != test.want[i].Label || math.Abs(float64(c.Score-test.want[i].Score)) > 1e-6 {
				t.Errorf("%s: got %v, want %v", name, got, test.want)
			}
		}
	}
}
