package tokenizer

// piece is a part of a text on its way to the model, or a token that is found already.
type piece struct {
	text string
	id   int32 // of a token, or none
	head int   // how much of text comes from the first character of the original text
}

// appendPiece appends part of a piece, unless it is empty.
func appendPiece(pieces []piece, p piece, start, end int) []piece {
	if start == end {
		return pieces
	}
	return append(pieces, piece{text: p.text[start:end], id: none, head: min(max(0, p.head-start), end-start)})
}

// change returns a piece with a changed text.
func (p piece) change(change func(string) string) piece {
	if p.head > 0 {
		p.head = len(change(p.text[:p.head]))
	}
	p.text = change(p.text)
	return p
}

// prepend returns a piece with more in front, which counts as part of the original's first character.
func (p piece) prepend(text string) piece {
	if p.head > 0 {
		p.head += len(text)
	}
	p.text = text + p.text
	return p
}
