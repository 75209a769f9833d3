package advice

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/overlapd/overlapd/training"
)

// sharedAdvice advises on the groups that the original system measured.
func sharedAdvice(t *testing.T, name string, o Options) *Advice {
	t.Helper()
	dir := os.Getenv("OVERLAPD_SHARED_DATA")
	if dir == "" {
		t.Skip("OVERLAPD_SHARED_DATA does not name a folder of measurements")
	}
	d, err := training.ReadPath(filepath.Join(dir, "abacus-a100", name))
	if err != nil {
		t.Fatal(err)
	}
	a := advised(t, d, o)
	return a
}

// TestSharedPairs finds the one pair that the paper would not deploy together
// (Abacus, sections 7.3 and 7.8).
func TestSharedPairs(t *testing.T) {
	a := sharedAdvice(t, "pairs", Options{})
	if len(a.Sets) != 21 {
		t.Fatalf("%d pairs", len(a.Sets))
	}
	for i, s := range a.Sets {
		vgg := slices.Equal(s.Models, []string{"vgg16", "vgg19"})
		if s.Bad() != vgg || vgg != (i == 20) {
			t.Errorf("%v gain %.2f: %s", s.Models, s.Gain, s.Verdict)
		}
	}
	for _, d := range a.Division.Devices {
		if slices.Contains(d.Services, "vgg16") && slices.Contains(d.Services, "vgg19") {
			t.Errorf("%v share a device", d.Services)
		}
	}
	for _, s := range a.Solo {
		if s.Model == "bert" && !near(s.Micros, 11000, 0.05) { // launching its kernels takes most of it, whatever the batch size
			t.Errorf("%+v", s)
		}
	}
}

func TestSharedQuadruplets(t *testing.T) {
	a := sharedAdvice(t, "quad", Options{Size: 4})
	if len(a.Division.Devices) != 1 || a.Division.Devices[0].Basis != basisMeasured || a.Division.Devices[0].Gain < 1.5 {
		t.Errorf("%+v", a.Division)
	}
}
