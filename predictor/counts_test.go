package predictor

import (
	"testing"

	"github.com/overlapd/overlapd/models"
)

// What is observed was not asked, and so is not counted.
func TestObserveIsNotCounted(t *testing.T) {
	solo, err := NewSolo(4, 4)
	if err != nil {
		t.Fatal(err)
	}
	p := New(solo)
	for service := range 2 {
		if err := solo.SetOperators(models.ServiceID(service), 1, 0, []int64{1e6, 1e6, 1e6, 1e6}); err != nil {
			t.Fatal(err)
		}
	}
	pair := models.Group{Spans: []models.Span{{Service: 0, End: 4, Size: 1}, {Service: 1, End: 4, Size: 1}}}
	p.Predict([]models.Group{pair, {Spans: pair.Spans[:1]}}, make([]models.Estimate, 2))
	if err := p.Observe(0, pair, 5e6); err != nil {
		t.Fatal(err)
	}
	r := p.Report(true)
	if r.Answers["sum"] != 1 || r.Answers["solo"] != 1 || r.Fallbacks["no predictor"] != 1 || len(r.Shapes) == 0 {
		t.Errorf("%+v", r)
	}
}
