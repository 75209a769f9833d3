package serving

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
)

// someGroups returns groups of two models whose spans take longer together
// than the longer one alone, and not as long as one after the other.
func someGroups(rows int) *training.Dataset {
	r := rand.New(rand.NewPCG(1, 1))
	d := &training.Dataset{Device: "a device", Models: []training.Model{{Name: "a", Operators: 10}, {Name: "b", Operators: 6}}}
	for range rows {
		a := models.Span{Service: 0, Start: r.IntN(5), End: 10, Size: 1 + r.IntN(4)}
		b := models.Span{Service: 1, End: 1 + r.IntN(6), Size: 1 + r.IntN(4)}
		x, y := float64(a.Len()*a.Size*100), float64(b.Len()*b.Size*150)
		took := max(x, y) + 0.3*min(x, y)
		d.Rows = append(d.Rows, training.Row{Group: models.Group{Spans: []models.Span{a, b}}, Repeats: 3, Median: took, Mean: took})
	}
	return d
}

func TestFitElsewhere(t *testing.T) {
	t.Setenv("OVERLAPD_TEST_FIT", "1") // this test binary is overlapd then
	f, err := fitElsewhere(context.Background(), someGroups(100), nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.Device != "a device" || f.Rows == 0 || f.Test.MAPE > 30 {
		t.Errorf("device %q, %d rows, error %.1f %%", f.Device, f.Rows, f.Test.MAPE)
	}
	if _, err := fitElsewhere(context.Background(), &training.Dataset{}, nil); err == nil || !strings.Contains(err.Error(), "exit status 1: overlapd: ") {
		t.Errorf("without rows: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := fitElsewhere(ctx, someGroups(100), nil); err == nil || ctx.Err() == nil {
		t.Errorf("cancelled: %v", err)
	}
}
