package tokenizer

// split returns a splitter at what a pattern finds, or, inverted, at what it does not.
func split(p pattern, behavior string, invert bool) splitter {
	return func(pieces []piece, whole piece) []piece {
		s := separator{pieces: pieces, whole: whole, behavior: behavior}
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
	}
}

// separator makes pieces of spans that come one after the other and cover the whole.
type separator struct {
	pieces     []piece
	whole      piece
	behavior   string
	start, end int  // the span that may yet grow
	found      bool // the last span was found, not what is between
}

// add takes the next span. It grows the last piece, or ends it and begins one. What is removed does neither,
// so that the span after it does not touch the last and begins a piece as well.
func (s *separator) add(start, end int, found bool) {
	grows := false
	switch s.behavior {
	case "Removed":
		if found {
			return
		}
	case "Contiguous":
		grows = found == s.found
	case "MergedWithPrevious":
		grows = found && !s.found
	case "MergedWithNext":
		grows = !found && s.found
	}
	if !grows || s.end != start {
		s.pieces = appendPiece(s.pieces, s.whole, s.start, s.end)
		s.start = start
	}
	s.end, s.found = end, found
}
