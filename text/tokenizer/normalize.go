package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// normalizer rewrites texts.
type normalizer struct {
	// of returns a text normalized. It also reports whether it removed something at the start, so that
	// the text begins later in the original; one kind of Metaspace depends on that.
	of func(text string) (changed string, moved bool)
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

// normalized returns a piece with its text normalized.
func normalized(p piece, normalize normalizer) piece {
	text, moved := normalize.of(p.text)
	switch {
	case moved:
		p.head = 0
	case p.head > 0:
		head, _ := normalize.of(p.text[:p.head])
		p.head = min(len(head), len(text))
	}
	p.text = text
	return p
}

// normalizers has a builder for each type of normalizer.
var normalizers map[string]builder[normalizer]

func init() { // sequences contain normalizers
	normalizers = map[string]builder[normalizer]{
		"BertNormalizer": options(newBertNormalizer),
		"ByteLevel":      fixed(whole(byteLevel, 2)),
		"Lowercase":      fixed(whole(lowercase, 1)),
		"NFC":            fixed(whole(nfc.of, 1)),
		"NFD":            fixed(whole(nfd.of, 1)),
		"NFKC":           fixed(whole(nfkc.of, 1)),
		"NFKD":           fixed(whole(nfkd.of, 1)),
		"Nmt":            fixed(normalizer{func(text string) (string, bool) { return without(text, isNmtControl, nmtSpace) }, 1}),
		"Precompiled":    options(newPrecompiled),
		"Prepend":        options(newPrepend),
		"Replace":        options(newReplace),
		"Sequence":       options(newNormalizerSequence),
		"Strip":          options(newStrip),
		"StripAccents":   fixed(normalizer{func(text string) (string, bool) { return without(text, marks.has, nil) }, 1}),
	}
}

// whole is a normalizer that never removes the start of a text.
func whole(change func(string) string, growth int) normalizer {
	return normalizer{func(text string) (string, bool) { return change(text), false }, growth}
}

// without removes the code points of a text that drop selects, and maps the others.
func without(text string, drop func(rune) bool, mapped func(rune) rune) (string, bool) {
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
}

// newNormalizerSequence applies normalizers one after the other.
func newNormalizerSequence(spec struct{ Normalizers []json.RawMessage }) (normalizer, error) {
	if len(spec.Normalizers) > maxSteps {
		return normalizer{}, fmt.Errorf("%d normalizers; the limit is %d", len(spec.Normalizers), maxSteps)
	}
	growth := 1
	parts := make([]normalizer, len(spec.Normalizers))
	for i, part := range spec.Normalizers {
		var err error
		if parts[i], err = component("normalizer", part, normalizers); err != nil {
			return normalizer{}, err
		}
		if growth *= parts[i].growth; growth > maxGrowth {
			return normalizer{}, fmt.Errorf("the normalizers together may make a text more than %d times as long", maxGrowth)
		}
	}
	return normalizer{func(text string) (string, bool) {
		moved := false
		for _, n := range parts {
			var m bool
			text, m = n.of(text)
			moved = moved || m
		}
		return text, moved
	}, growth}, nil
}

// newBertNormalizer cleans texts, spaces ideographs, strips accents and lowercases, in this order. Accents are
// stripped with lowercasing unless the file says otherwise. Each step is left out where it has nothing to do.
func newBertNormalizer(spec struct {
	CleanText          bool  `json:"clean_text"`
	HandleChineseChars bool  `json:"handle_chinese_chars"`
	StripAccents       *bool `json:"strip_accents"`
	Lowercase          bool
}) (normalizer, error) {
	stripAccents := spec.Lowercase
	if spec.StripAccents != nil {
		stripAccents = *spec.StripAccents
	}
	return normalizer{func(text string) (string, bool) {
		moved, m := false, false
		if spec.CleanText {
			text, moved = without(text, controls.has, spaces)
		}
		if spec.HandleChineseChars && hasAbove(text, 0x33ff) {
			text = spaceChinese(text)
		}
		if stripAccents && hasAbove(text, unicode.MaxASCII) {
			text, m = without(nfd.of(text), nonspacing.has, nil)
			moved = moved || m
		}
		if spec.Lowercase {
			text = lowercase(text)
		}
		return text, moved
	}, 1}, nil
}

// hasAbove reports whether a text has a code point above a limit.
func hasAbove(text string, limit rune) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r > limit }) >= 0
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
	case 0x3400 <= r && r <= 0x4dbf, 0x4e00 <= r && r <= 0x9fff, 0xf900 <= r && r <= 0xfaff,
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
}) (normalizer, error) {
	if len(spec.Charsmap) == 0 {
		return normalizer{}, errNoCharsmap
	}
	c, err := newCharsmap(spec.Charsmap)
	if err != nil {
		return normalizer{}, err
	}
	return whole(c.of, c.growth), nil
}

// newStrip strips white space at the ends.
func newStrip(spec struct {
	Left  bool `json:"strip_left"`
	Right bool `json:"strip_right"`
}) (normalizer, error) {
	return normalizer{func(text string) (string, bool) {
		before := len(text)
		if spec.Left {
			text = strings.TrimLeftFunc(text, unicode.IsSpace)
		}
		moved := len(text) < before
		if spec.Right {
			text = strings.TrimRightFunc(text, unicode.IsSpace)
		}
		return text, moved
	}, 1}, nil
}

// newPrepend puts something before a text, unless that is empty.
func newPrepend(spec struct{ Prepend string }) (normalizer, error) {
	if len(spec.Prepend) > maxInserted {
		return normalizer{}, fmt.Errorf("prepend has %d bytes; the limit is %d", len(spec.Prepend), maxInserted)
	}
	return normalizer{func(text string) (string, bool) {
		if text == "" {
			return text, false
		}
		return spec.Prepend + text, false
	}, 1}, nil
}

// newReplace replaces what a pattern finds. The content is taken as it is, without references to groups.
func newReplace(spec struct {
	Pattern patternSpec
	Content string
}) (normalizer, error) {
	found, err := spec.Pattern.compile()
	if err != nil {
		return normalizer{}, err
	}
	// Repeated replacing is what could make a text very long: each may make it so many times as long.
	growth := max(1, len(spec.Content)) // an expression may match a single byte
	if spec.Pattern.String != nil {
		growth = max(1, (len(spec.Content)+len(*spec.Pattern.String)-1)/len(*spec.Pattern.String))
	}
	if growth > maxGrowth {
		return normalizer{}, fmt.Errorf("content %.20q… may make a text more than %d times as long", spec.Content, maxGrowth)
	}
	return normalizer{func(text string) (string, bool) {
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
	}, growth}, nil
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
