package selection

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadProfile(t *testing.T) {
	read := func(text string) ([]Variant, error) {
		path := filepath.Join(t.TempDir(), "profile.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadProfile(path)
	}
	const head = "variant,accuracy,batch,latency_ms\n"
	got, err := read(head + "slow,80,4,40\nfast,0.6,2,5\nslow,80,1,10\nfast,0.6,1,6\n")
	want := []Variant{{Name: "slow", Accuracy: 80, Latency: []float64{10, 20, 30, 40}}, {Name: "fast", Accuracy: 0.6, Latency: []float64{6, 5}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	if got, err := read(head + "padded,80,4,40\n"); err != nil || !cmp.Equal(got[0].Latency, []float64{40, 40, 40, 40}) {
		t.Errorf("%v, %v", got, err)
	}
	for want, text := range map[string]string{
		"no column accuracy":                             "variant,batch,latency_ms\na,1,5\n",
		`column 2 (accuracy) is "": it must be a number`: head + "a,,1,5\n",
		`column 2 (accuracy) is "NaN"`:                   head + "a,NaN,1,5\n",
		`column 4 (latency_ms) is "-1"`:                  head + "a,1,1,-1\n",
		`:3: unusable profile of variants: column 2 (accuracy) is "71": an earlier row gives the same variant 70`: head + "a,70,1,5\na,71,2,6\n",
		"an earlier row gives the same batch 5 ms":                                                                head + "a,70,1,5\na,70,1,5\n",
		"every row must name a variant":                                                                           head + ",70,1,5\n",
		"it must be a whole number from 1 to 128":                                                                 head + "a,70,200,5\n",
		"no row below them":       head,
		"more than 1000 variants": head + manyVariants(),
	} {
		if _, err := read(text); !errors.Is(err, errProfile) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

func TestInterpolate(t *testing.T) {
	measured := map[int]float64{1: 10, 2: 12, 4: 20}
	for _, c := range []struct {
		most, queue int
		want        []float64
	}{
		{8, 0, []float64{10, 12, 16, 20}}, {3, 0, []float64{10, 12, 16}}, {1, 3, []float64{10, 20, 30}},
		{4, 10, []float64{10, 12, 16, 20, 30, 32, 36, 40, 50, 52}},
	} {
		if got := Interpolate(measured, c.most, c.queue); !cmp.Equal(got, c.want) {
			t.Errorf("up to %d, a queue of %d: %v, want %v", c.most, c.queue, got, c.want)
		}
	}
	if got := Interpolate(nil, 4, 4); got != nil {
		t.Errorf("%v of nothing", got)
	}
}

func manyVariants() string {
	var b strings.Builder
	for i := range maxVariants + 1 {
		b.WriteString(strings.Repeat("v", i+1) + ",70,1,5\n")
	}
	return b.String()
}
