package mig

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/cuda"
)

// drawProfiles makes profiles up that no GPU has, so that the first place tried
// is often the wrong one.
func drawProfiles(t *rapid.T) (all []cuda.Profile) {
	for i := range rapid.IntRange(1, 4).Draw(t, "profiles") {
		size := rapid.IntRange(1, 4).Draw(t, "size")
		p := cuda.Profile{Name: fmt.Sprint(i), Slices: rapid.IntRange(1, 3).Draw(t, "slices"), Max: 8, Room: -1}
		starts := rapid.SliceOfNDistinct(rapid.IntRange(0, 8-size), 1, 3, rapid.ID).Draw(t, "starts")
		slices.Sort(starts)
		for _, start := range starts {
			p.Placements = append(p.Placements, cuda.Placement{Start: start, Size: size})
		}
		all = append(all, p)
	}
	return all
}

// fits tries every place for every need.
func fits(needs []need, taken []cuda.Placement) bool {
	if len(needs) == 0 {
		return true
	}
	return slices.ContainsFunc(needs[0].profile.Placements, func(at cuda.Placement) bool {
		return !slices.ContainsFunc(taken, at.Overlaps) && fits(needs[1:], append(slices.Clone(taken), at))
	})
}

// TestPlaceIsExact holds the search to all there is: it finds places if there
// are any, and those it finds are free.
func TestPlaceIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var needs []need
		for i, p := range rapid.SliceOfN(rapid.SampledFrom(drawProfiles(t)), 1, 6).Draw(t, "needs") {
			needs = append(needs, need{want: i, profile: p})
		}
		taken := []cuda.Placement{{Start: rapid.IntRange(0, 7).Draw(t, "taken"), Size: 1}}
		placed, ok := place(needs, taken)
		if ok != fits(needs, taken) {
			t.Fatalf("found %t", ok)
		}
		if !ok {
			return
		}
		for i, n := range placed {
			if n.want != i || !slices.Contains(n.profile.Placements, n.at) || slices.ContainsFunc(taken, n.at.Overlaps) {
				t.Fatalf("need %d is %+v beside %v", i, n, taken)
			}
			taken = append(taken, n.at)
		}
	})
}

// TestPlaceInOrder gives those of one profile their places in the order of the
// configuration.
func TestPlaceInOrder(t *testing.T) {
	p := cuda.Profile{Name: "1g", Slices: 1, Placements: []cuda.Placement{{Start: 0, Size: 1}, {Start: 3, Size: 1}, {Start: 6, Size: 1}}}
	placed, ok := place([]need{{want: 0, profile: p}, {want: 1, profile: p}, {want: 2, profile: p}}, nil)
	if !ok || placed[0].at.Start != 0 || placed[1].at.Start != 3 || placed[2].at.Start != 6 {
		t.Errorf("%+v, %t", placed, ok)
	}
}
