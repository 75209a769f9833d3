package predictor

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMatch(t *testing.T) {
	f := testFile(3, 4)
	f.Features.Models[0].Hash, f.Features.Models[1].Hash = "aaaa", "bbbb"
	for name, c := range map[string]struct {
		services []Served
		want     []int
	}{
		"by hash":          {[]Served{{"x", "renamed", "bbbb", 10}, {"y", "a", "aaaa", 10}}, []int{1, 0}},
		"by name":          {[]Served{{"x", "c", "cccc", 10}, {"y", "a", "", 10}}, []int{2, 0}},
		"one unknown":      {[]Served{{"x", "a", "aaaa", 10}, {"y", "other", "dddd", 3}, {"z", "c", "", 10}}, []int{0, -1, 2}},
		"one model twice":  {[]Served{{"x", "a", "aaaa", 10}, {"y", "a", "aaaa", 10}, {"z", "c", "", 10}}, []int{0, 0, 2}},
		"name of another":  {[]Served{{"x", "b", "aaaa", 10}, {"y", "c", "", 10}}, []int{0, 2}},
		"hash before name": {[]Served{{"x", "c", "bbbb", 10}, {"y", "a", "", 10}}, []int{1, 0}},
	} {
		got, err := f.Match("test", c.services)
		if err != nil || !cmp.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}

// One model that several services had when it was measured is several models.
func TestMatchOfOneHashTwice(t *testing.T) {
	f := testFile(3, 4)
	for i := range f.Features.Models {
		f.Features.Models[i].Hash = "aaaa"
	}
	for name, c := range map[string]struct {
		models []string
		want   []int
	}{
		"by name":         {[]string{"c", "a", "b"}, []int{2, 0, 1}},
		"renamed":         {[]string{"x", "y", "z"}, []int{0, 1, 2}},
		"more than there": {[]string{"x", "y", "z", "a"}, []int{0, 1, 2, 0}},
		"some renamed":    {[]string{"b", "x"}, []int{1, 0}},
	} {
		var services []Served
		for _, m := range c.models {
			services = append(services, Served{m, m, "aaaa", 10})
		}
		if got, err := f.Match("test", services); err != nil || !cmp.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}

func TestMatchRefuses(t *testing.T) {
	f := testFile(3, 4)
	f.Features.Models[0].Hash, f.Features.Models[2].Hash = "aaaa", "cccc/4 threads"
	a, b := Served{"x", "a", "aaaa", 10}, Served{"y", "b", "bbbb", 10}
	for name, c := range map[string]struct {
		device   string
		services []Served
		want     error
		parts    []string
	}{
		"device":    {"other", []Served{a, b}, ErrDevice, []string{`"test"`, `"other"`}},
		"none":      {"test", []Served{{"x", "p", "", 1}, {"y", "q", "", 1}}, ErrModels, []string{"0 of the models", `"x" "y"`}},
		"one":       {"test", []Served{a, {"y", "q", "", 1}}, ErrModels, []string{"1 of the models", `"y"`}},
		"one twice": {"test", []Served{a, a}, ErrModels, []string{"1 of the models"}},
		"hash":      {"test", []Served{{"x", "a", "ffff", 10}, b, {"z", "c", "", 10}}, ErrModels, []string{"service x", "aaaa", "ffff"}},
		"threads": {"test", []Served{{"x", "c", "cccc/2 threads", 10}, b, a}, ErrModels,
			[]string{"model c was trained with 4 threads, it has 2 threads"}},
		"runtime":   {"test, ONNX Runtime 2", []Served{a, b}, ErrDevice, []string{`trained on "test", this is "test, ONNX Runtime 2"`}},
		"operators": {"test", []Served{a, {"y", "b", "bbbb", 9}}, ErrModels, []string{"service y", "10 operators", "it has 9"}},
		"all":       {"other", []Served{{"x", "a", "ffff", 7}}, ErrDevice, []string{"other", "ffff", "it has 7", "1 of the models"}},
	} {
		bind, err := f.Match(c.device, c.services)
		if !errors.Is(err, c.want) || bind != nil {
			t.Errorf("%s: %v, %v; want %q", name, bind, err, c.want)
			continue
		}
		for _, part := range c.parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not hold %q", name, err, part)
			}
		}
	}
}
