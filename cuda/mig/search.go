package mig

import (
	"cmp"
	"errors"
	"slices"

	"github.com/overlapd/overlapd/cuda"
)

// maxSteps bounds the search. What real GPUs allow needs some hundred steps.
const maxSteps = 1 << 20

// errSteps is returned when the search was given up.
var errSteps = errors.New("the search for placements took too many steps")

// need is an instance to be placed.
type need struct {
	want    int // whose
	profile cuda.Profile
	at      cuda.Placement
}

// searcher tries placements, the largest instances first.
type searcher struct {
	needs []need
	taken []cuda.Placement
	steps int
}

// place finds a place for every need beside what is taken, trying all. Starts
// are tried from the last: small instances then leave the first half free,
// where alone the largest can lie. It reports whether there is one.
func place(needs []need, taken []cuda.Placement) ([]need, bool, error) {
	s := searcher{needs: slices.Clone(needs), taken: slices.Clone(taken)}
	slices.SortStableFunc(s.needs, func(a, b need) int {
		return cmp.Or(b.profile.Slices-a.profile.Slices, cmp.Compare(b.profile.Memory, a.profile.Memory), cmp.Compare(a.profile.Name, b.profile.Name))
	})
	found := s.from(0)
	if s.steps > maxSteps {
		return nil, false, errSteps
	}
	if !found {
		return nil, false, nil
	}
	return s.inOrder(), true, nil
}

// from places the needs from the i-th on. Needs of one profile are alike, so
// each lies before the last of its kind: that tries every set once.
func (s *searcher) from(i int) bool {
	if i == len(s.needs) {
		return true
	}
	n := &s.needs[i]
	for _, at := range slices.Backward(n.profile.Placements) {
		if s.steps++; s.steps > maxSteps {
			return false
		}
		if i > 0 && s.needs[i-1].profile.Name == n.profile.Name && at.Start >= s.needs[i-1].at.Start {
			continue
		}
		if slices.ContainsFunc(s.taken, at.Overlaps) {
			continue
		}
		n.at = at
		s.taken = append(s.taken, at)
		if s.from(i + 1) {
			return true
		}
		s.taken = s.taken[:len(s.taken)-1]
	}
	return false
}

// inOrder returns the needs as they were wanted, those of one profile from the
// first place on.
func (s *searcher) inOrder() []need {
	for i := range s.needs {
		for j := i + 1; j < len(s.needs); j++ {
			a, b := &s.needs[i], &s.needs[j]
			if a.profile.Name == b.profile.Name && (a.want < b.want) != (a.at.Start < b.at.Start) {
				a.at, b.at = b.at, a.at
			}
		}
	}
	slices.SortFunc(s.needs, func(a, b need) int { return a.want - b.want })
	return s.needs
}
