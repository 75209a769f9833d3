package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/overlapd/overlapd/text/chars"
)

// preTokenizers has a builder for each type of pre-tokenizer. One may consist of several steps.
var preTokenizers map[string]builder[[]splitter]

func init() { // sequences contain pre-tokenizers
	preTokenizers = map[string]builder[[]splitter]{
		"BertPreTokenizer": fixed([]splitter{
			split(runeSet(unicode.IsSpace), removed, false),
			split(runeSet(chars.IsPunctuation), isolated, false),
		}),
		"ByteLevel":          options(newByteLevel),
		"CharDelimiterSplit": options(newCharDelimiterSplit),
		"Digits":             options(newDigits),
		"Metaspace":          options(newMetaspace),
		"Punctuation":        options(newPunctuation),
		"Sequence":           options(newPreTokenizerSequence),
		"Split":              options(newSplit),
		"Whitespace":         fixed([]splitter{split(words{}, removed, true)}),
		"WhitespaceSplit":    fixed([]splitter{split(runeSet(unicode.IsSpace), removed, false)}),
	}
}

// newPreTokenizerSequence has one ByteLevel at most: each makes what is not ASCII twice as long.
func newPreTokenizerSequence(spec struct{ PreTokenizers []json.RawMessage }) ([]splitter, error) {
	if len(spec.PreTokenizers) > maxSteps {
		return nil, fmt.Errorf("%d pre-tokenizers; the limit is %d", len(spec.PreTokenizers), maxSteps)
	}
	var all []splitter
	byteLevels := 0
	for _, part := range spec.PreTokenizers {
		kind, err := kindOfComponent(part)
		if err != nil {
			return nil, err
		}
		if kind == "ByteLevel" {
			byteLevels++
		}
		if kind == "Sequence" || byteLevels > 1 {
			return nil, errors.New("a Sequence within it, or a second ByteLevel, is not supported")
		}
		steps, err := named("pre_tokenizer", kind, part, preTokenizers)
		if err != nil {
			return nil, err
		}
		all = append(all, steps...)
	}
	return all, nil
}

// newSplit splits at a text or at what an expression matches.
func newSplit(spec struct {
	Pattern  patternSpec
	Behavior behavior
	Invert   bool
}) ([]splitter, error) {
	found, err := spec.Pattern.compile()
	if err != nil {
		return nil, err
	}
	if err := checkBehavior(spec.Behavior); err != nil {
		return nil, err
	}
	return []splitter{split(found, spec.Behavior, spec.Invert)}, nil
}

// newPunctuation splits at punctuation, each character of it by itself unless the file says otherwise.
func newPunctuation(spec struct{ Behavior *behavior }) ([]splitter, error) {
	b := isolated
	if spec.Behavior != nil {
		b = *spec.Behavior
	}
	if err := checkBehavior(b); err != nil {
		return nil, err
	}
	return []splitter{split(runeSet(chars.IsPunctuation), b, false)}, nil
}

// newDigits splits at digits and other numeric characters, one by one or in runs.
func newDigits(spec struct {
	Individual bool `json:"individual_digits"`
}) ([]splitter, error) {
	b := contiguous
	if spec.Individual {
		b = isolated
	}
	return []splitter{split(runeSet(chars.Digits.Has), b, false)}, nil
}

// newCharDelimiterSplit splits at a character, which it removes.
func newCharDelimiterSplit(spec struct{ Delimiter string }) ([]splitter, error) {
	if utf8.RuneCountInString(spec.Delimiter) != 1 {
		return nil, fmt.Errorf("delimiter %q is not one character", spec.Delimiter)
	}
	return []splitter{split(literal(spec.Delimiter), removed, false)}, nil
}

// newMetaspace replaces spaces by a visible one, which it also puts before the text, and splits there.
// Older files say add_prefix_space instead of prepend_scheme.
func newMetaspace(spec struct {
	Replacement string
	Scheme      string `json:"prepend_scheme"`
	AddPrefix   *bool  `json:"add_prefix_space"`
	Split       *bool
}) ([]splitter, error) {
	if utf8.RuneCountInString(spec.Replacement) != 1 {
		return nil, fmt.Errorf("replacement %q is not one character", spec.Replacement)
	}
	space, scheme := spec.Replacement, cmp.Or(spec.Scheme, "always")
	if !slices.Contains([]string{"always", "first", "never"}, scheme) {
		return nil, fmt.Errorf("prepend_scheme is %q, not always, first or never", scheme)
	}
	if !isTrue(spec.AddPrefix) {
		scheme = "never"
	}
	replacement, _ := utf8.DecodeRuneInString(space)
	visible := func(r rune) rune {
		if r == ' ' {
			return replacement
		}
		return r
	}
	steps := []splitter{{
		split: func(pieces []piece, p piece) []piece {
			p = p.change(func(text string) string { return strings.ReplaceAll(text, " ", space) })
			if !strings.HasPrefix(p.text, space) && (scheme == "always" || scheme == "first" && p.head > 0) {
				p = p.prepend(space)
			}
			return append(pieces, p)
		},
		cut: func(before, after rune) (place, rune, rune) {
			before, after = visible(before), visible(after)
			if scheme == "always" && after != replacement {
				return entangled, before, after // the piece behind the place would get a space
			}
			return apart, before, after
		},
	}}
	if isTrue(spec.Split) {
		steps = append(steps, split(literal(space), mergedWithNext, false))
	}
	return steps, nil
}

// newByteLevel splits a text into words and writes their bytes as visible characters.
func newByteLevel(spec struct {
	AddPrefix bool  `json:"add_prefix_space"`
	UseRegex  *bool `json:"use_regex"`
}) ([]splitter, error) {
	var steps []splitter
	if spec.AddPrefix {
		steps = append(steps, splitter{
			split: func(pieces []piece, p piece) []piece {
				if !strings.HasPrefix(p.text, " ") {
					p = p.prepend(" ")
				}
				return append(pieces, p)
			},
			cut: func(before, after rune) (place, rune, rune) {
				if after != ' ' {
					return entangled, before, after // the piece behind the place would get a space
				}
				return apart, before, after
			},
		})
	}
	if isTrue(spec.UseRegex) {
		steps = append(steps, split(gpt2(), isolated, false))
	}
	return append(steps, splitter{
		split: func(pieces []piece, p piece) []piece {
			return append(pieces, p.change(byteLevel))
		},
		cut: func(before, after rune) (place, rune, rune) {
			last, _ := utf8.DecodeLastRuneInString(byteLevel(string(before)))
			first, _ := utf8.DecodeRuneInString(byteLevel(string(after)))
			return apart, last, first
		},
	}), nil
}

// isTrue reports whether an option is true, which it is if a file lacks it.
func isTrue(option *bool) bool { return option == nil || *option }

// checkBehavior returns an error for what split does not know.
func checkBehavior(b behavior) error {
	if !b.valid() {
		return fmt.Errorf("behavior is %q, not one of %q", b, behaviors)
	}
	return nil
}
