package tokenizer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/overlapd/overlapd/internal/textfile"
)

// maxFile is the limit in bytes on a file; the largest in use have some 40 MB.
const maxFile = 256 << 20

// Tokenizer turns text into token IDs. It is safe for concurrent use.
type Tokenizer struct {
	added       addedTokens
	normalizers []normalizer
	splitters   []splitter
	model       model
	template    template
	truncation  *truncation // nil if the file has none
	padID       int64
	padType     int64
	portion     int // portionBytes, but for tests
}

// Read reads a tokenizer.json.
func Read(file string) (*Tokenizer, error) {
	// A device or a pipe could block, or never end.
	text, err := textfile.ReadRegular(file, maxFile)
	if err != nil {
		return nil, err
	}
	t, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

// Parse reads the text of a tokenizer.json. Its error for an unsupported component names the supported ones.
func Parse(text []byte) (*Tokenizer, error) {
	var file struct {
		Truncation    *truncation
		Padding       *padding
		Added         []addedToken `json:"added_tokens"`
		Normalizer    json.RawMessage
		PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
		PostProcessor json.RawMessage `json:"post_processor"`
		Model         json.RawMessage
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	if absent(file.Model) {
		return nil, fmt.Errorf("not a tokenizer.json: it has no model")
	}
	if len(file.Added) > maxAdded {
		return nil, fmt.Errorf("added_tokens has %d entries; the limit is %d", len(file.Added), maxAdded)
	}
	t := &Tokenizer{truncation: file.Truncation, portion: portionBytes}
	var err error
	if t.model, err = newModel(file.Model); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if t.normalizers, err = optional("normalizer", file.Normalizer, normalizers); err != nil {
		return nil, err
	}
	if t.splitters, err = optional("pre_tokenizer", file.PreTokenizer, preTokenizers); err != nil {
		return nil, err
	}
	if t.template, err = optional("post_processor", file.PostProcessor, postProcessors); err != nil {
		return nil, err
	}
	if t.template.single == nil {
		t.template = bare
	}
	if t.truncation != nil {
		if err := t.truncation.validate(); err != nil {
			return nil, err
		}
	}
	t.added = newAddedTokens(file.Added, t.model.words(), t.normalizers)
	t.padID, t.padType = t.padding(file.Padding)
	return t, nil
}

// padding is the token that a file pads with. The caller chooses the length.
type padding struct {
	ID   uint32 `json:"pad_id"`
	Type uint32 `json:"pad_type_id"`
}

// padding returns the token to pad with: that of the file, or else the one with a usual name.
func (t *Tokenizer) padding(p *padding) (id, typ int64) {
	if p != nil {
		return int64(p.ID), int64(p.Type)
	}
	for _, name := range []string{"[PAD]", "<pad>", "<|pad|>"} {
		if id, ok := t.added.ids[name]; ok {
			return int64(id), 0
		}
		if id := t.model.words().find(name); id != none {
			return int64(id), 0
		}
	}
	return 0, 0
}

// Pad returns the ID and the segment to pad with.
func (t *Tokenizer) Pad() (id, typ int64) { return t.padID, t.padType }

// Encode returns the tokens of a text, or of a pair of texts if pair is not nil, with special tokens,
// truncated to at most limit tokens. With a limit of 0, the limit of the file applies if it has one. Bytes
// that are not UTF-8 count as U+FFFD. Encode returns the error of ctx soon after that has ended. It also
// fails with ErrUnknown, and if the limit is below the number of special tokens.
func (t *Tokenizer) Encode(ctx context.Context, text string, pair *string, limit int) (Encoding, error) {
	parts := t.template.single
	if pair != nil {
		parts = t.template.pair
	}
	c := t.truncation
	if limit > 0 {
		limited := truncation{Direction: right, Strategy: longest}
		if c != nil {
			limited = *c
		}
		limited.MaxLength = min(limit, maxTokens)
		c = &limited
	}
	if c != nil && c.MaxLength < added(parts) {
		return Encoding{}, fmt.Errorf("the limit of %d tokens has no room for the %d special tokens", c.MaxLength, added(parts))
	}

	// One token more than the limit shows that the text is truncated. The others need not be made.
	s := scratches.Get().(*scratch)
	defer s.release()
	s.ctx = ctx
	most := unlimited
	if c != nil {
		most = c.MaxLength + 1
	}
	if err := t.texts(text, pair, c, most, s); err != nil {
		return Encoding{}, err
	}
	if c != nil && pair != nil && min(len(s.ids[0]), len(s.ids[1])) >= most && c.odd(parts) {
		// One text gets a token more than the other, and it depends on which is longer.
		if err := t.texts(text, pair, c, unlimited, s); err != nil {
			return Encoding{}, err
		}
	}
	texts, cut := s.ids, false
	if c != nil {
		first, second := c.lengths(len(texts[0]), len(texts[1]), c.MaxLength-added(parts))
		cut = first < len(texts[0]) || second < len(texts[1])
		texts[0], texts[1] = c.shorten(texts[0], first), c.shorten(texts[1], second)
	}
	e := fill(parts, texts)
	e.Cut = cut
	return e, nil
}

// texts fills s.ids with the tokens of a text and its pair, without special tokens. Beyond most, it may leave
// out tokens that truncation does not keep.
func (t *Tokenizer) texts(text string, pair *string, c *truncation, most int, s *scratch) (err error) {
	s.ids[1] = s.ids[1][:0]
	if s.ids[0], err = t.tokens(s.ids[0][:0], text, c, most, s); err == nil && pair != nil {
		s.ids[1], err = t.tokens(s.ids[1], *pair, c, most, s)
	}
	return err
}

// tokens appends the tokens of a text, portion by portion, until there are as many as most. To keep the last
// tokens, the last portion is first, and so is its last piece: its tokens are reversed, and then all are.
func (t *Tokenizer) tokens(ids []int64, text string, c *truncation, most int, s *scratch) ([]int64, error) {
	reversed := c != nil && c.Direction == left
	for from, to := 0, len(text); from < to && (most == unlimited || len(ids) < most); {
		start, end := from, to
		if reversed {
			start = t.lastPortion(text[:to])
			to = start
		} else {
			end = from + t.firstPortion(text[from:])
			from = end
		}
		t.pieces(text[start:end], start == 0, s)
		var err error
		if ids, err = t.encode(ids, reversed, most, s); err != nil {
			return ids, err
		}
	}
	if reversed {
		slices.Reverse(ids)
	}
	return ids, nil
}

// pieces divides a portion of a text into s.pieces. It may be the start of the text.
func (t *Tokenizer) pieces(text string, start bool, s *scratch) {
	if !utf8.ValidString(text) {
		text = string([]rune(text))
	}
	whole := piece{text: text, id: none}
	if start {
		_, whole.head = utf8.DecodeRuneInString(text)
	}
	// Added tokens are cut out first: those as written from the text, and then those that are normalized
	// from what was normalized between. A token is never divided further, and what follows one is
	// normalized as if it were a text.
	s.pieces = t.added.split(s.pieces[:0], whole, t.added.asWritten)
	if len(t.normalizers) > 0 || t.added.normalized != nil {
		for i := range s.pieces {
			if p := &s.pieces[i]; p.id == none {
				*p = normalized(*p, t.normalizers, start || i > 0)
			}
		}
		s.each(func(pieces []piece, p piece) []piece { return t.added.split(pieces, p, t.added.normalized) })
	}
	for i := range t.splitters {
		s.each(t.splitters[i].split)
	}
}

// encode appends the tokens of s.pieces, at most some more than most, or in reverse.
func (t *Tokenizer) encode(ids []int64, reversed bool, most int, s *scratch) ([]int64, error) {
	if err := s.check(); err != nil {
		return ids, err
	}
	if reversed {
		slices.Reverse(s.pieces)
	}
	for _, p := range s.pieces {
		if most != unlimited && len(ids) >= most {
			break
		}
		if p.id != none {
			ids = append(ids, int64(p.id))
			continue
		}
		if err := s.spend(len(p.text)); err != nil {
			return ids, err
		}
		before := len(ids)
		var err error
		if ids, err = t.model.tokens(ids, p.text, s); err != nil {
			return ids, err
		}
		if reversed {
			slices.Reverse(ids[before:])
		}
	}
	return ids, nil
}
