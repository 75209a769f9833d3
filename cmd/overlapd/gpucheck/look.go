package gpucheck

import (
	"fmt"
	"strings"
)

// The answers of a look.
const (
	Holds  = "holds"
	Misses = "misses"
	Seen   = "see" // evidence that a person has to judge
)

// Look is what was seen of one thing that docs/gpu-assumptions.md says is taken
// for granted, by its number there.
type Look struct {
	ID     string `json:"id"`
	Saw    string `json:"saw"`
	Answer string `json:"answer"` // Holds, Misses or Seen
}

// sawMax is how many bytes of something printed are kept.
const sawMax = 600

// see notes evidence that a person has to judge.
func (c *check) see(id, format string, args ...any) { c.look(id, Seen, format, args...) }

// expect notes whether something is as it is taken for granted.
func (c *check) expect(id string, holds bool, format string, args ...any) {
	answer := Misses
	if holds {
		answer = Holds
	}
	c.look(id, answer, format, args...)
}

func (c *check) look(id, answer, format string, args ...any) {
	saw := fmt.Sprintf(format, args...)
	if len(saw) > sawMax {
		saw = strings.ToValidUTF8(saw[:sawMax], "") + "…"
	}
	c.keep(func(r *Report) { r.Looks = append(r.Looks, Look{id, saw, answer}) })
}

// lookTable returns all looks, those that miss first.
func (r *Report) lookTable() table {
	t := table{
		anchor: "assumptions", Title: "What is taken for granted",
		Note: "Numbers are those of docs/gpu-assumptions.md. What says see is evidence that a person has to judge; what is not listed was not looked at.",
		Head: []string{"n", "", "saw"},
	}
	for _, answer := range []string{Misses, Seen, Holds} {
		for _, l := range append(r.Looks[:len(r.Looks):len(r.Looks)], r.Assumed...) {
			if l.Answer == answer {
				t.Rows = append(t.Rows, []string{l.ID, l.Answer, l.Saw})
			}
		}
	}
	return t
}
