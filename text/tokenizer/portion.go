package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// A long text is tokenized in portions, so that what truncation drops costs nothing. It is cut only at
// places where nothing on one side depends on the other: not where added tokens are looked for, nor where
// texts are rewritten, split, or merged. Each of these components knows for which pairs of characters that
// holds. Where it holds for none, as in a word of a megabyte, the rest of a text is one portion.
const (
	portionBytes = 4 << 10 // from which on a portion ends at the next place
	maxPlaces    = 1 << 10 // that are tried; a text in which they are not enough is not cut
	minDense     = 0x2e80  // from which on characters are mostly ideographs, between which a text may be cut
)

// firstPortion returns the end of the first portion of a text.
func (t *Tokenizer) firstPortion(text string) int {
	for at, tried := t.portion, 0; at < len(text) && tried < maxPlaces; at++ {
		if promising(text, at) {
			tried++
			if t.apart(text, at) {
				return at
			}
		}
	}
	return len(text)
}

// lastPortion returns the start of the last portion of a text.
func (t *Tokenizer) lastPortion(text string) int {
	for at, tried := len(text)-t.portion, 0; at > 0 && tried < maxPlaces; at-- {
		if promising(text, at) {
			tried++
			if t.apart(text, at) {
				return at
			}
		}
	}
	return 0
}

// promising reports whether a place is between two kinds of characters or before an ideograph.
func promising(text string, at int) bool {
	if !utf8.RuneStart(text[at]) {
		return false
	}
	after, _ := utf8.DecodeRuneInString(text[at:])
	if after >= minDense {
		return true
	}
	before, _ := utf8.DecodeLastRuneInString(text[:at])
	return kindOf(before) != kindOf(after)
}

// apart reports whether the tokens of a text are those of its part before a place and those of the part
// behind it, the latter as the continuation of a text.
func (t *Tokenizer) apart(text string, at int) bool {
	near := nearby(text, at)
	if len(near.before) == 0 || len(near.after) == 0 || !t.added.asWritten.apart(near.edge()) {
		return false
	}
	for i := range t.normalizers {
		if !near.rewrite(&t.normalizers[i]) {
			return false
		}
	}
	before, after := near.edge()
	if !t.added.normalized.apart(before, after) {
		return false
	}
	for i := range t.splitters {
		var p place
		switch p, before, after = t.splitters[i].cut(before, after); p {
		case entangled:
			return false
		case border:
			return true
		}
	}
	return t.model.apart(before, after)
}

// neighbours are the characters next to a place, the nearest first, and what normalizers make of each. Those
// farther away are unknown.
type neighbours struct {
	before, after []string
}

// maxNeighbours is how many characters on each side are looked at. A normalizer that regards neighbours
// leaves the outermost of them unknown.
const maxNeighbours = 4

// nearby returns the characters next to a place, up to the ends of a text or bytes that are not UTF-8.
func nearby(text string, at int) (near neighbours) {
	buffer := make([]string, 2*maxNeighbours)
	near.before, near.after = buffer[:0:maxNeighbours], buffer[maxNeighbours:maxNeighbours]
	for start := at; len(near.before) < maxNeighbours; {
		r, size := utf8.DecodeLastRuneInString(text[:start])
		if r == utf8.RuneError {
			break
		}
		near.before = append(near.before, text[start-size:start])
		start -= size
	}
	for end := at; len(near.after) < maxNeighbours; {
		r, size := utf8.DecodeRuneInString(text[end:])
		if r == utf8.RuneError {
			break
		}
		near.after = append(near.after, text[end:end+size])
		end += size
	}
	return near
}

// edge returns the two characters next to the place.
func (near *neighbours) edge() (before, after rune) { return joint(near.before[0], near.after[0]) }

// joint returns the last character of a text and the first of the next.
func joint(left, right string) (before, after rune) {
	before, _ = utf8.DecodeLastRuneInString(left)
	after, _ = utf8.DecodeRuneInString(right)
	return before, after
}

// rewrite applies a normalizer to the characters. It reports false if the place is not one between texts
// that are rewritten apart, or if what is next to it becomes unknown.
func (near *neighbours) rewrite(n *normalizer) bool {
	if n.apart != nil && !n.apart(near.edge()) {
		return false
	}
	if n.ends {
		return true
	}
	near.before = near.known(near.before, n, func(near, far string) (rune, rune) { return joint(far, near) })
	near.after = near.known(near.after, n, func(near, far string) (rune, rune) { return joint(near, far) })
	return len(near.before) > 0 && len(near.after) > 0
}

// known returns what becomes of the characters on one side, as far as each is rewritten apart from the next.
func (*neighbours) known(side []string, n *normalizer, joint func(near, far string) (before, after rune)) []string {
	kept := side[:0]
	for i, text := range side {
		alone := n.apart == nil || n.touches != nil && strings.IndexFunc(text, n.touches) < 0
		if !alone && (i+1 == len(side) || !n.apart(joint(text, side[i+1]))) {
			break
		}
		if changed, _ := n.of(text, false); changed != "" {
			kept = append(kept, changed)
		}
	}
	return kept
}
