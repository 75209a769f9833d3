package predictor

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
)

// Counts is a report but for the shapes.
func TestCounts(t *testing.T) {
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
	if err := p.Observe(pair, 5e6); err != nil {
		t.Fatal(err)
	}
	counts, report := p.Counts(), p.Report()
	if counts.Answers[SourceSum] != 1 || counts.Answers[SourceSolo] != 1 || counts.Fallbacks[FallbackPredictor] != 1 {
		t.Errorf("%+v", counts)
	}
	if len(report.Shapes) == 0 || counts.Shapes != nil {
		t.Errorf("%d shapes, and %d in the counts", len(report.Shapes), len(counts.Shapes))
	}
	report.Shapes = nil
	if diff := cmp.Diff(report, counts); diff != "" {
		t.Error(diff)
	}
}
