package tokenizer

import (
	"unicode"
	"unicode/utf8"

	"github.com/overlapd/overlapd/text/chars"
)

// addedToken is a token that is cut out of a text before anything else happens to it.
type addedToken struct {
	Content    string
	SingleWord bool `json:"single_word"` // only where no letter, digit or mark is next to it
	LeftStrip  bool `json:"lstrip"`      // takes the white space before it
	RightStrip bool `json:"rstrip"`      // takes the white space behind it
	Normalized bool // is looked for, normalized, in the normalized text
}

// addedTokens are the added tokens of a file.
type addedTokens struct {
	byID       map[int32]addedToken
	ids        map[string]int32 // by content
	asWritten  *addedWords      // looked for in the text as it is
	normalized *addedWords      // looked for in the normalized text
}

// newAddedTokens assigns IDs: that of the vocabulary, or the next free one. The reference ignores the IDs in
// the file, too.
func newAddedTokens(tokens []addedToken, words *vocabulary, normalizers []normalizer) addedTokens {
	a := addedTokens{byID: make(map[int32]addedToken), ids: make(map[string]int32)}
	// The next free ID is the number of words, even if the IDs of a vocabulary have gaps.
	next := int32(words.size)
	for _, token := range tokens {
		if token.Content == "" {
			continue
		}
		id, ok := a.ids[token.Content]
		if !ok {
			id = words.find(token.Content)
		}
		if id == none {
			id = next
			next++
		}
		a.ids[token.Content] = id
		a.byID[id] = token
	}
	var asWritten, normalized []entry
	for id, token := range a.byID {
		// What is normalized away cannot be found.
		switch {
		case !token.Normalized:
			asWritten = append(asWritten, entry{token.Content, id})
		default:
			if content, _ := normalize(token.Content, normalizers, true); content != "" {
				normalized = append(normalized, entry{content, id})
			}
		}
	}
	a.asWritten, a.normalized = a.newWords(asWritten), a.newWords(normalized)
	return a
}

// addedWords are texts that stand for added tokens.
type addedWords struct {
	*trie
	joined map[[2]rune]bool // what is next to each other in one of them
	last   map[rune]bool    // what ends one of them
	first  map[rune]bool    // what begins one that depends on what is before it

	stripsLeft, stripsRight bool // one of them takes the white space next to it
}

// newWords returns the words, or nil, so that a text need not be searched if there are none.
func (a addedTokens) newWords(entries []entry) *addedWords {
	if len(entries) == 0 {
		return nil
	}
	w := &addedWords{joined: make(map[[2]rune]bool), last: make(map[rune]bool), first: make(map[rune]bool)}
	for _, e := range entries {
		token := a.byID[e.id]
		w.stripsLeft, w.stripsRight = w.stripsLeft || token.LeftStrip, w.stripsRight || token.RightStrip
		last := rune(none)
		for _, r := range e.word {
			if last == none {
				w.first[r] = w.first[r] || token.LeftStrip || token.SingleWord
			} else {
				w.joined[[2]rune{last, r}] = true
			}
			last = r
		}
		w.last[last] = true
	}
	w.trie = newTrie(entries)
	return w
}

// apart reports whether a place is in no word, and no word depends on it. No word ends at it either, nor the
// white space that it takes: what follows a token is normalized as the start of a text.
func (w *addedWords) apart(before, after rune) bool {
	if w == nil {
		return true
	}
	taken := unicode.IsSpace(before) && (w.stripsRight || w.stripsLeft && unicode.IsSpace(after))
	return !taken && !w.joined[[2]rune{before, after}] && !w.last[before] && !w.first[after]
}

// split appends a piece, cut where words are found: the longest at the leftmost place.
func (a addedTokens) split(pieces []piece, p piece, words *addedWords) []piece {
	if words == nil {
		return appendPiece(pieces, p, 0, len(p.text))
	}
	// A token that strips white space on its right may overlap with the next one. Then from goes back, as in
	// the reference.
	text := p.text
	from := 0                  // what is before it has been appended
	spaceFrom, spaceTo := 0, 0 // white space that was looked at last
	for at := 0; at < len(text); {
		id, length := words.longest(0, text[at:])
		if length == 0 {
			at++
			continue
		}
		start, stop := at, at+length
		at = stop
		token := a.byID[id]
		// The search resumes behind the token even if it does not count here.
		if token.SingleWord && (endsInWord(text[:start]) || startsInWord(text[stop:])) {
			continue
		}
		if token.LeftStrip {
			for start > from {
				r, size := utf8.DecodeLastRuneInString(text[from:start])
				if !unicode.IsSpace(r) {
					break
				}
				start -= size
			}
			start = max(start, from)
		}
		// A run of white space is looked at once, even if it is full of tokens.
		if token.RightStrip {
			if stop < spaceFrom || stop >= spaceTo {
				spaceFrom, spaceTo = stop, stop+spaceLength(text[stop:])
			}
			stop = spaceTo
		}
		if from < start {
			pieces = appendPiece(pieces, p, from, start)
		}
		pieces = append(pieces, piece{id: id})
		from = stop
	}
	if from < len(text) {
		pieces = appendPiece(pieces, p, from, len(text))
	}
	return pieces
}

// endsInWord reports whether a text ends in a letter, a digit or a mark.
func endsInWord(text string) bool {
	r, size := utf8.DecodeLastRuneInString(text)
	return size > 0 && chars.Word.Has(r)
}

// startsInWord reports whether a text starts with a letter, a digit or a mark.
func startsInWord(text string) bool {
	r, size := utf8.DecodeRuneInString(text)
	return size > 0 && chars.Word.Has(r)
}

// spaceLength returns the length of the white space that a text starts with.
func spaceLength(text string) int {
	for i, r := range text {
		if !unicode.IsSpace(r) {
			return i
		}
	}
	return len(text)
}
