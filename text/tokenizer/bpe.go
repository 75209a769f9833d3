package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// bpe merges the characters of a piece, pairs in the order in which training merged them.
type bpe struct {
	*vocabulary
	merges       map[[2]int32]merge
	prefix       string // of a character that does not begin a piece
	suffix       string // of a character that ends one
	rest         int32  // the node of prefix
	unknown      int32
	hasUnknown   bool // whether the file names a token for what is unknown
	fuseUnknown  bool
	byteFallback bool
	byteTokens   [256]int32
	wholeFirst   bool // a piece that is a word is not merged

	// beforeSpace has what is before a space in some word; older vocabularies have whole texts as pieces.
	beforeSpace map[rune]bool
}

// merge is the token that a pair becomes, and its rank: the lowest is merged first.
type merge struct{ rank, id int32 }

// newBPE looks up the merges. A pair that is listed twice has the rank of the later, as in the reference.
func newBPE(spec struct {
	Vocab        map[string]uint32
	Merges       mergeList
	Dropout      *float64
	Unk          *string `json:"unk_token"`
	Prefix       string  `json:"continuing_subword_prefix"`
	Suffix       string  `json:"end_of_word_suffix"`
	FuseUnk      bool    `json:"fuse_unk"`
	ByteFallback bool    `json:"byte_fallback"`
	IgnoreMerges bool    `json:"ignore_merges"`
}) (*bpe, error) {
	if spec.Dropout != nil && *spec.Dropout != 0 {
		return nil, fmt.Errorf("dropout is %g, which makes token IDs random; set it to null", *spec.Dropout)
	}
	words, err := newVocabulary(spec.Vocab)
	if err != nil {
		return nil, err
	}
	m := &bpe{
		vocabulary: words, merges: make(map[[2]int32]merge, len(spec.Merges)),
		prefix: spec.Prefix, suffix: spec.Suffix, rest: words.walk(0, spec.Prefix),
		unknown: words.optional(spec.Unk), hasUnknown: spec.Unk != nil, fuseUnknown: spec.FuseUnk,
		byteFallback: spec.ByteFallback, byteTokens: words.bytes(), wholeFirst: spec.IgnoreMerges,
		beforeSpace: make(map[rune]bool),
	}
	for word := range spec.Vocab {
		last := rune(none)
		for _, r := range word {
			if r == metaspace && last != none {
				m.beforeSpace[last] = true
			}
			last = r
		}
	}
	// Merges are known by the IDs of their two tokens, so that merging compares no text. The token that they
	// make is that of both texts, without the prefix of the second.
	for rank, pair := range spec.Merges {
		if len(pair[1]) < len(m.prefix) {
			return nil, fmt.Errorf("merge %d: %q is shorter than continuing_subword_prefix %q", rank, pair[1], m.prefix)
		}
		merged := pair[0] + pair[1][len(m.prefix):]
		a, b, id := words.find(pair[0]), words.find(pair[1]), words.find(merged)
		if a == none || b == none || id == none {
			return nil, fmt.Errorf("merge %d: %q, %q or both together are not in the vocabulary", rank, pair[0], pair[1])
		}
		m.merges[[2]int32{a, b}] = merge{int32(rank), id}
	}
	return m, nil
}

// mergeList reads pairs, or, of older files, lines with a space between the two.
type mergeList [][2]string

// UnmarshalJSON reads either kind of list.
func (l *mergeList) UnmarshalJSON(raw []byte) error {
	var pairs [][2]string
	if json.Unmarshal(raw, &pairs) == nil { // all newer files
		*l = pairs
		return nil
	}
	var lines []string
	if err := json.Unmarshal(raw, &lines); err != nil {
		return errors.New("merges are neither pairs nor lines")
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "#version") {
			continue
		}
		parts := strings.Split(line, " ")
		if len(parts) != 2 {
			return fmt.Errorf("merge %q is not two tokens with a space between", line)
		}
		*l = append(*l, [2]string(parts))
	}
	return nil
}

// apart reports whether no merge can join what is before a visible space with it, which is then the same
// as merging two pieces: if no word has both, and neither is unknown.
func (m *bpe) apart(before, after rune) bool {
	return after == metaspace && !m.beforeSpace[before] && !m.wholeFirst && m.prefix == "" && m.suffix == "" &&
		m.find(string(before)) != none && m.find(string(after)) != none
}

// tokens appends the IDs of the symbols that are left after merging. There is no cache of words: a
// text of 128 tokens takes some 25 µs without one, and a cache would keep words of clients.
func (m *bpe) tokens(ids []int64, text string, s *scratch) ([]int64, error) {
	// As Llama 3 has it: a word of the vocabulary is a token, even if no merges lead to it.
	if m.wholeFirst {
		if id := m.find(text); id != none {
			return append(ids, int64(id)), nil
		}
	}
	s.symbols, s.queue = slices.Grow(s.symbols[:0], len(text)), slices.Grow(s.queue[:0], len(text))
	if err := m.characters(text, s); err != nil {
		return ids, err
	}
	if err := m.merge(s); err != nil {
		return ids, err
	}
	for _, symbol := range s.symbols {
		if symbol.id != none {
			ids = append(ids, int64(symbol.id))
		}
	}
	return ids, nil
}

// characters makes a symbol of each character. An unknown character is held back until a known one follows,
// because it may be fused with others. Tokens of bytes overtake it, as in the reference.
func (m *bpe) characters(text string, s *scratch) error {
	waiting := false
	for at := 0; at < len(text); {
		_, size := utf8.DecodeRuneInString(text[at:])
		character, first, last := text[at:at+size], at == 0, at+size == len(text)
		at += size
		if id := m.character(character, first, last); id != none {
			if waiting {
				s.addSymbol(m.unknown)
				waiting = false
			}
			s.addSymbol(id)
			continue
		}
		// Without a token for what is unknown, the reference leaves it out.
		if m.byteFallback && m.addBytes(character, first, last, s) || !m.hasUnknown {
			continue
		}
		if m.unknown == none {
			return ErrUnknown
		}
		if waiting && !m.fuseUnknown {
			s.addSymbol(m.unknown)
		}
		waiting = true
	}
	if waiting {
		s.addSymbol(m.unknown)
	}
	return nil
}

// character returns the ID of a character at its place in a piece, or none.
func (m *bpe) character(character string, first, last bool) int32 {
	node := int32(0)
	if !first {
		node = m.rest
	}
	node = m.walk(node, character)
	if last {
		node = m.walk(node, m.suffix)
	}
	return m.at(node)
}

// addBytes adds a symbol for each byte of a character, if there are tokens for all.
func (m *bpe) addBytes(character string, first, last bool, s *scratch) bool {
	if !first {
		character = m.prefix + character
	}
	if last {
		character += m.suffix
	}
	for i := range len(character) {
		if m.byteTokens[character[i]] == none {
			return false
		}
	}
	for i := range len(character) {
		s.addSymbol(m.byteTokens[character[i]])
	}
	return true
}

// merge merges pairs of symbols: those of the lowest rank first, of these the leftmost. The queue is a
// heap, so that n characters take O(n log n).
func (m *bpe) merge(s *scratch) error {
	for i := range len(s.symbols) - 1 {
		m.offer(s, int32(i))
	}
	for n := 1; len(s.queue) > 0; n++ {
		if n%checkInterval == 0 {
			if err := s.check(); err != nil {
				return err
			}
		}
		rank, at := s.pop()
		// Merges that are no longer possible stay in the heap: skipping them here is cheaper than
		// removing them there.
		left := &s.symbols[at]
		if left.id == none || left.next == none {
			continue
		}
		right := &s.symbols[left.next]
		merged, ok := m.merges[[2]int32{left.id, right.id}]
		if !ok || merged.rank != rank { // one of the two has changed since
			continue
		}
		// The left symbol takes the place of both and has new neighbours, with which it may merge.
		left.id, left.next = merged.id, right.next
		right.id = none
		if left.next != none {
			s.symbols[left.next].previous = at
			m.offer(s, at)
		}
		if left.previous != none {
			m.offer(s, left.previous)
		}
	}
	return nil
}

// offer queues the merge of a symbol with its next, if there is one.
func (m *bpe) offer(s *scratch, at int32) {
	left := s.symbols[at]
	if merged, ok := m.merges[[2]int32{left.id, s.symbols[left.next].id}]; ok {
		s.push(merged.rank, at)
	}
}
