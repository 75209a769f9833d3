package tokenizer

import (
	"errors"
	"unicode/utf8"
)

// wordPiece takes the longest word of its vocabulary at each place, from the left.
type wordPiece struct {
	*vocabulary
	rest    int32 // the node of the prefix of words that continue another
	unknown int32
	most    int // characters of a piece; one with more is unknown
}

// newWordPiece requires all options, as the reference does.
func newWordPiece(spec struct {
	Vocab  map[string]uint32
	Unk    *string `json:"unk_token"`
	Prefix *string `json:"continuing_subword_prefix"`
	Most   *int    `json:"max_input_chars_per_word"`
}) (*wordPiece, error) {
	words, err := newVocabulary(spec.Vocab)
	if err != nil {
		return nil, err
	}
	if spec.Unk == nil || spec.Prefix == nil || spec.Most == nil {
		return nil, errors.New("unk_token, continuing_subword_prefix or max_input_chars_per_word is missing")
	}
	return &wordPiece{words, words.walk(0, *spec.Prefix), words.find(*spec.Unk), *spec.Most}, nil
}

// tokens appends the IDs of the words of a piece. If some part of it is in no word, all of it is unknown.
func (m *wordPiece) tokens(ids []int64, text string, _ *scratch) ([]int64, error) {
	before := len(ids)
	known := len(text) <= m.most || utf8.RuneCountInString(text) <= m.most
	for at, node := 0, int32(0); known && at < len(text); node = m.rest {
		if node == none {
			known = false
			break
		}
		id, length := m.longest(node, text[at:])
		known = length > 0
		ids = append(ids, int64(id))
		at += length
	}
	if known {
		return ids, nil
	}
	if m.unknown == none {
		return ids, ErrUnknown
	}
	return append(ids[:before], int64(m.unknown)), nil
}

// wordLevel knows whole pieces only.
type wordLevel struct {
	*vocabulary
	unknown int32
}

// newWordLevel makes a model without parts of words.
func newWordLevel(spec struct {
	Vocab map[string]uint32
	Unk   *string `json:"unk_token"`
}) (*wordLevel, error) {
	words, err := newVocabulary(spec.Vocab)
	if err != nil {
		return nil, err
	}
	return &wordLevel{words, words.optional(spec.Unk)}, nil
}

// tokens appends the ID of a piece.
func (m *wordLevel) tokens(ids []int64, text string, _ *scratch) ([]int64, error) {
	id := m.find(text)
	if id == none {
		id = m.unknown
	}
	if id == none {
		return ids, ErrUnknown
	}
	return append(ids, int64(id)), nil
}
