package residency

import (
	"math"
	"strings"
	"testing"
	"time"
)

// The boxes of a policy cover as much memory as its models take on average, at most all there is, and a
// model that is always in memory has one box.
func TestPicture(t *testing.T) {
	sc := small()
	sc.Models, sc.Memory, sc.Load, sc.Start = 10, 2e9, 0.01, time.Second
	policies := []string{Daemon, "lru", fixed}
	c, err := Picture(sc, policies)
	if err != nil || len(c.Series) != len(policies) {
		t.Fatalf("%d series, %v", len(c.Series), err)
	}
	w, err := newWorld(sc)
	if err != nil {
		t.Fatal(err)
	}
	high := rowUsed / float64(len(policies))
	for n, s := range c.Series {
		bytes := 0.0
		for _, b := range s.Boxes {
			id := int(math.Round(b[1]-high*float64(n)+rowUsed/2)) - 1
			if part := (b[3] - b[1]) / high; b[0] < 0 || b[2] > sc.Duration.Hours()+1e-9 || part <= 0 || part > 1+1e-9 {
				t.Errorf("%s: a box %v, of which %v is used", s.Name, b, part)
			}
			bytes += (b[3] - b[1]) / high * (b[2] - b[0]) * float64(w.models[id].bytes)
		}
		if part := bytes / float64(sc.Memory) / sc.Duration.Hours(); part > 1+grain || part < 0.4 {
			t.Errorf("%s: boxes cover %.2f of the memory", s.Name, part)
		}
	}
	if boxes, kept := len(c.Series[2].Boxes), newFixed(w); boxes == 0 || boxes > len(kept) {
		t.Errorf("%d boxes for models that never change", boxes)
	}
	if !strings.Contains(string(c.File()), "lru: ") {
		t.Error("the legend does not name lru")
	}
	sc.Models = pictureModels + 1
	if _, err := Picture(sc, policies); err == nil || !strings.Contains(err.Error(), "--models") {
		t.Errorf("too many models: %v", err)
	}
}
