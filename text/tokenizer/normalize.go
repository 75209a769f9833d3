package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/overlapd/overlapd/text/chars"
)

// normalizer is one step in which a text is rewritten before it is split.
type normalizer struct {
	// of returns a text rewritten; start is false if the text continues one whose beginning was rewritten
	// before. It also reports whether it removed something at the start, so that the text begins later in
	// the original; one kind of Metaspace depends on that.
	of func(text string, start bool) (changed string, moved bool)

	// apart reports whether what is before a place is rewritten without regard to what is behind it, and
	// the reverse, by the two characters next to it. It is nil if each character is rewritten by itself.
	apart func(before, after rune) bool

	// touches reports whether a character may be rewritten, next to whatever. It is nil if that is not known.
	touches func(rune) bool

	// ends is set if only the ends of a text are rewritten.
	ends bool

	// growth is by how many times the bytes of a text may become more. It is 1 for what makes some
	// characters longer, but only once, however often it is applied, as the normal forms do.
	growth int
}

// Limits on a normalizer, so that no file makes a text take all memory or time.
const (
	maxGrowth   = 128
	maxSteps    = 64   // normalizers or pre-tokenizers of a sequence
	maxInserted = 1024 // bytes of what a normalizer puts in
)

// metaspace is SentencePiece's visible space.
const metaspace = '\u2581'

// normalize applies normalizers one after the other.
func normalize(text string, all []normalizer, start bool) (changed string, moved bool) {
	for i := range all {
		var m bool
		text, m = all[i].of(text, start)
		moved = moved || m
	}
	return text, moved
}

// normalized returns a piece with its text normalized.
func normalized(p piece, all []normalizer, start bool) piece {
	text, moved := normalize(p.text, all, start)
	switch {
	case moved:
		p.head = 0
	case p.head > 0:
		head, _ := normalize(p.text[:p.head], all, start)
		p.head = min(len(head), len(text))
	}
	p.text = text
	return p
}

// normalizers has a builder for each type of normalizer. One may consist of several steps.
var normalizers map[string]builder[[]normalizer]

func init() { // sequences contain normalizers
	normalizers = map[string]builder[[]normalizer]{
		"BertNormalizer": options(newBertNormalizer),
		"ByteLevel":      fixed([]normalizer{eachChar(byteLevel, 2)}),
		"Lowercase":      fixed([]normalizer{eachChar(chars.Lower, 1)}),
		"NFC":            fixed([]normalizer{normalForm(chars.NFC)}),
		"NFD":            fixed([]normalizer{normalForm(chars.NFD)}),
		"NFKC":           fixed([]normalizer{normalForm(chars.NFKC)}),
		"NFKD":           fixed([]normalizer{normalForm(chars.NFKD)}),
		"Nmt":            fixed([]normalizer{without(isNmtControl, nmtSpace)}),
		"Precompiled":    options(newPrecompiled),
		"Prepend":        options(newPrepend),
		"Replace":        options(newReplace),
		"Sequence":       options(newNormalizerSequence),
		"Strip":          options(newStrip),
		"StripAccents":   fixed([]normalizer{without(chars.Marks.Has, nil)}),
	}
}

// eachChar rewrites each character by itself and removes none.
func eachChar(change func(string) string, growth int) normalizer {
	return normalizer{of: func(text string, _ bool) (string, bool) { return change(text), false }, growth: growth}
}

// normalForm brings a text into a normal form. No form removes a character.
func normalForm(form chars.Form) normalizer {
	n := eachChar(form.Of, 1)
	n.apart = func(_, after rune) bool { return form.Begins(after) }
	return n
}

// without removes the characters that drop selects, and maps the others.
func without(drop func(rune) bool, mapped func(rune) rune) normalizer {
	return normalizer{growth: 1, of: func(text string, _ bool) (string, bool) {
		// strings.Map returns the text itself if nothing changes.
		first, _ := utf8.DecodeRuneInString(text)
		moved := text != "" && drop(first)
		return strings.Map(func(r rune) rune {
			switch {
			case drop(r):
				return -1
			case mapped != nil:
				return mapped(r)
			}
			return r
		}, text), moved
	}}
}

// newNormalizerSequence applies normalizers one after the other.
func newNormalizerSequence(spec struct{ Normalizers []json.RawMessage }) ([]normalizer, error) {
	var all []normalizer
	growth := 1
	for _, part := range spec.Normalizers {
		one, err := component("normalizer", part, normalizers)
		if err != nil {
			return nil, err
		}
		if all = append(all, one...); len(all) > maxSteps {
			return nil, fmt.Errorf("the normalizers have more than %d steps", maxSteps)
		}
		for _, n := range one {
			if growth *= n.growth; growth > maxGrowth {
				return nil, fmt.Errorf("the normalizers together may make a text more than %d times as long", maxGrowth)
			}
		}
	}
	return all, nil
}

// newBertNormalizer cleans texts, spaces ideographs, strips accents and lowercases, in this order. Accents are
// stripped with lowercasing unless the file says otherwise. Steps skip texts in which they have nothing to do.
func newBertNormalizer(spec struct {
	CleanText          bool  `json:"clean_text"`
	HandleChineseChars bool  `json:"handle_chinese_chars"`
	StripAccents       *bool `json:"strip_accents"`
	Lowercase          bool
}) ([]normalizer, error) {
	stripAccents := spec.Lowercase
	if spec.StripAccents != nil {
		stripAccents = *spec.StripAccents
	}
	var all []normalizer
	if spec.CleanText {
		all = append(all, without(chars.Controls.Has, spaces))
	}
	if spec.HandleChineseChars {
		all = append(all, eachChar(spaceChinese, 1))
	}
	if stripAccents {
		all = append(all, normalForm(chars.NFD), without(chars.Nonspacing.Has, nil))
	}
	if spec.Lowercase {
		all = append(all, eachChar(chars.Lower, 1))
	}
	return all, nil
}

// spaces maps white space to the space.
func spaces(r rune) rune {
	if unicode.IsSpace(r) {
		return ' '
	}
	return r
}

// spaceChinese puts spaces around each ideograph.
func spaceChinese(text string) string {
	if strings.IndexFunc(text, isChinese) < 0 {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/2)
	for _, r := range text {
		if isChinese(r) {
			out = append(utf8.AppendRune(append(out, ' '), r), ' ')
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return string(out)
}

// isChinese reports whether BERT takes a code point for an ideograph: a list of blocks, one of which
// the reference begins later than Unicode does.
func isChinese(r rune) bool {
	switch {
	case r < 0x3400:
		return false
	case r <= 0x4dbf, 0x4e00 <= r && r <= 0x9fff, 0xf900 <= r && r <= 0xfaff,
		0x20000 <= r && r <= 0x2a6df, 0x2a700 <= r && r <= 0x2b73f, 0x2b740 <= r && r <= 0x2b81f,
		0x2b920 <= r && r <= 0x2ceaf, 0x2f800 <= r && r <= 0x2fa1f:
		return true
	}
	return false
}

// isNmtControl reports whether the normalizer of machine translation removes a code point.
func isNmtControl(r rune) bool {
	switch {
	case 1 <= r && r <= 8, r == 0xb, 0xe <= r && r <= 0x1f, r == 0x7f, r == 0x8f, r == 0x9f:
		return true
	}
	return false
}

// nmtSpace maps what the normalizer of machine translation takes for white space to the space.
func nmtSpace(r rune) rune {
	switch {
	case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, 0x200b <= r && r <= 0x200f,
		r == 0x2028, r == 0x2029, r == metaspace, r == 0xfeff, r == 0xfffd:
		return ' '
	}
	return r
}

// newPrecompiled replaces by a table. encoding/json decodes its base64.
func newPrecompiled(spec struct {
	Charsmap []byte `json:"precompiled_charsmap"`
}) ([]normalizer, error) {
	c, err := newCharsmap(spec.Charsmap)
	if err != nil {
		return nil, err
	}
	n := eachChar(c.of, c.growth)
	n.apart = chars.ClustersApart
	return []normalizer{n}, nil
}

// newStrip strips white space at the ends.
func newStrip(spec struct {
	Left  bool `json:"strip_left"`
	Right bool `json:"strip_right"`
}) ([]normalizer, error) {
	return []normalizer{{growth: 1, ends: true,
		of: func(text string, start bool) (string, bool) {
			before := len(text)
			if spec.Left && start {
				text = strings.TrimLeftFunc(text, unicode.IsSpace)
			}
			moved := len(text) < before
			if spec.Right {
				text = strings.TrimRightFunc(text, unicode.IsSpace)
			}
			return text, moved
		},
		// Then there is something that stays at the left of the place.
		apart: func(before, _ rune) bool { return !unicode.IsSpace(before) },
	}}, nil
}

// newPrepend puts something before a text, unless that is empty.
func newPrepend(spec struct{ Prepend string }) ([]normalizer, error) {
	if len(spec.Prepend) > maxInserted {
		return nil, fmt.Errorf("prepend has %d bytes; the limit is %d", len(spec.Prepend), maxInserted)
	}
	return []normalizer{{growth: 1, ends: true, of: func(text string, start bool) (string, bool) {
		if text == "" || !start {
			return text, false
		}
		return spec.Prepend + text, false
	}}}, nil
}

// newReplace replaces what a pattern finds. The content is taken as it is, without references to groups.
func newReplace(spec struct {
	Pattern patternSpec
	Content string
}) ([]normalizer, error) {
	found, err := spec.Pattern.compile()
	if err != nil {
		return nil, err
	}
	// Repeated replacing is what could make a text very long: each may make it so many times as long.
	growth := max(1, len(spec.Content)) // an expression may match a single byte
	if spec.Pattern.String != nil {
		growth = max(1, (len(spec.Content)+len(*spec.Pattern.String)-1)/len(*spec.Pattern.String))
	}
	if growth > maxGrowth {
		return nil, fmt.Errorf("content %.20q… may make a text more than %d times as long", spec.Content, maxGrowth)
	}
	return []normalizer{{growth: growth,
		of: func(text string, _ bool) (string, bool) {
			var out []byte
			from, moved := 0, false
			// What is between the matches is copied.
			found.each(text, func(start, end int) {
				// What replaces several code points begins where the last of them did.
				if start == 0 && (spec.Content == "" || utf8.RuneCountInString(text[:end]) > 1) {
					moved = true
				}
				out = append(append(out, text[from:start]...), spec.Content...)
				from = end
			})
			if from == 0 {
				return text, false
			}
			return string(append(out, text[from:]...)), moved
		},
		apart:   func(before, after rune) bool { return !found.joins(before, after) },
		touches: func(r rune) bool { return found.at(r) != outside },
	}}, nil
}

// byteChars has the visible character that stands for each byte in byte-level vocabularies: itself if
// it is one in Latin-1, or the next free one from U+0100 on.
var byteChars = func() (chars [256]string) {
	next := rune(256)
	for b := range chars {
		switch {
		case '!' <= b && b <= '~', 0xa1 <= b && b <= 0xac, 0xae <= b:
			chars[b] = string(rune(b))
		default:
			chars[b] = string(next)
			next++
		}
	}
	return chars
}()

// byteLevel writes a visible character for each byte of a text.
func byteLevel(text string) string {
	out := make([]byte, 0, len(text)+len(text)/4)
	for i := range len(text) {
		out = append(out, byteChars[text[i]]...)
	}
	return string(out)
}
