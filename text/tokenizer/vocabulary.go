package tokenizer

import (
	"errors"
	"fmt"
	"math"
)

// maxAdded is the limit on added tokens.
const maxAdded = 1 << 20

// ErrUnknown is returned for a text with a part that is not in the vocabulary, if the file names no
// token for what is unknown.
var ErrUnknown = errors.New("the text has characters that the tokenizer does not know, and its file names no token for them")

// vocabulary has the words of a model.
type vocabulary struct {
	*trie
	size int   // entries, as the reference counts them
	top  int32 // the highest ID
}

// newVocabulary returns the vocabulary of a file that lists IDs by word. IDs stay well below the highest
// number of 32 bits, so that those of added tokens fit as well.
func newVocabulary(ids map[string]uint32) (*vocabulary, error) {
	entries := make([]entry, 0, len(ids))
	top := int32(none)
	for word, id := range ids {
		if id > math.MaxInt32-maxAdded {
			return nil, fmt.Errorf("the ID of token %q is %d; the highest supported is %d", word, id, math.MaxInt32-maxAdded)
		}
		entries = append(entries, entry{word, int32(id)})
		top = max(top, int32(id))
	}
	return &vocabulary{newTrie(entries), len(ids), top}, nil
}

// words returns the vocabulary; models embed theirs.
func (v *vocabulary) words() *vocabulary { return v }

// apart reports that a piece cannot be cut in two.
func (v *vocabulary) apart(_, _ rune) bool { return false }

// optional returns the ID of a token that may be missing or not be named at all.
func (v *vocabulary) optional(token *string) int32 {
	if token == nil {
		return none
	}
	return v.find(*token)
}

// bytes returns the IDs of the tokens that stand for single bytes, none for those that are missing.
func (v *vocabulary) bytes() (ids [256]int32) {
	for b := range ids {
		ids[b] = v.find(fmt.Sprintf("<0x%02X>", b))
	}
	return ids
}

// appendBytes appends the token of each byte of a text, if there are all.
func appendBytes(ids []int64, text string, tokens *[256]int32) ([]int64, bool) {
	before := len(ids)
	for i := range len(text) {
		id := tokens[text[i]]
		if id == none {
			return ids[:before], false
		}
		ids = append(ids, int64(id))
	}
	return ids, true
}
