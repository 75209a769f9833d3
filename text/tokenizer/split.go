package tokenizer

// splitter splits pieces. It is one step of a pre-tokenizer.
type splitter struct {
	split func(pieces []piece, p piece) []piece

	// cut reports what becomes of a place between two characters, and how they are changed.
	cut func(before, after rune) (place, rune, rune)
}

// place is what a splitter does at a place of a text.
type place uint8

const (
	entangled place = iota // what is on one side may depend on the other
	apart                  // both sides are split as if each were all, but may have a piece in common
	border                 // they also have no piece in common
)

// split returns a splitter at what a pattern finds, or, inverted, at what it does not.
func split(p pattern, b behavior, invert bool) splitter {
	return splitter{
		split: func(pieces []piece, whole piece) []piece {
			s := separator{pieces: pieces, whole: whole, behavior: b}
			// What is between two finds is a span as well.
			end := 0
			p.each(whole.text, func(from, to int) {
				if end < from {
					s.add(end, from, invert)
				}
				s.add(from, to, !invert)
				end = to
			})
			if end < len(whole.text) {
				s.add(end, len(whole.text), invert)
			}
			return appendPiece(s.pieces, whole, s.start, s.end)
		},
		cut: func(before, after rune) (place, rune, rune) {
			if p.joins(before, after) {
				return entangled, before, after
			}
			// The two are in different spans if one of them is in a match, since no match has both.
			x, y := p.at(before), p.at(after)
			switch {
			case x != inside && y != inside:
			case b == removed || b == isolated,
				x != perhaps && y != perhaps && !b.grows((x == inside) != invert, (y == inside) != invert):
				return border, before, after
			}
			return apart, before, after
		},
	}
}

// separator makes pieces of spans that come one after the other and cover the whole.
type separator struct {
	pieces     []piece
	whole      piece
	behavior   behavior
	start, end int  // the span that may yet grow
	found      bool // the last span was found, not what is between
}

// add takes the next span. It extends the last piece, or ends it and begins one. A span that is removed does
// neither, and the span after it begins a piece because it does not touch the last one.
func (s *separator) add(start, end int, found bool) {
	if found && s.behavior == removed {
		return
	}
	if !s.behavior.grows(s.found, found) || s.end != start {
		s.pieces = appendPiece(s.pieces, s.whole, s.start, s.end)
		s.start = start
	}
	s.end, s.found = end, found
}
