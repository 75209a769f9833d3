package tokenizer

import (
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/overlapd/overlapd/text/chars"
)

// pattern finds parts of a text, which follow one another and are not empty.
type pattern interface {
	each(text string, yield func(start, end int))

	// joins reports whether a match may depend on both of two neighbouring characters. If not, the matches
	// on both sides of the place between them are those of two texts.
	joins(before, after rune) bool

	// at reports whether a character next to such a place is in a match.
	at(r rune) presence
}

// patternSpec is a pattern as files have it.
type patternSpec struct {
	String *string
	Regex  *string
}

// compile returns the pattern. Oniguruma would match an empty one between all characters. The expressions
// of the large families have finders of their own.
func (s patternSpec) compile() (pattern, error) {
	switch {
	case s.String != nil && *s.String != "":
		return literal(*s.String), nil
	case s.Regex == nil:
		return nil, errors.New("a pattern is neither a String nor a Regex, or is empty")
	}
	r, err := compile(*s.Regex)
	if err != nil {
		return nil, err
	}
	switch *s.Regex {
	case gpt2Regex:
		return runs{regex: r}, nil
	case llama3Regex:
		return runs{regex: r, cl100k: true, digits: 3}, nil
	case qwen2Regex:
		return runs{regex: r, cl100k: true, digits: 1}, nil
	}
	return r, nil
}

// presence is whether a character is part of a match.
type presence uint8

const (
	perhaps presence = iota
	outside
	inside
)

// insideIf returns inside or outside.
func insideIf(is bool) presence {
	if is {
		return inside
	}
	return outside
}

// runeSet finds each character of a kind by itself.
type runeSet func(rune) bool

// each finds every character of the kind.
func (c runeSet) each(text string, yield func(start, end int)) {
	for i, r := range text {
		if c(r) {
			yield(i, i+utf8.RuneLen(r))
		}
	}
}

func (runeSet) joins(_, _ rune) bool { return false }

func (c runeSet) at(r rune) presence { return insideIf(c(r)) }

// literal finds a text.
type literal string

// each finds the text where it does not overlap with the one before.
func (l literal) each(text string, yield func(start, end int)) {
	for at := 0; ; {
		i := strings.Index(text[at:], string(l))
		if i < 0 {
			return
		}
		yield(at+i, at+i+len(l))
		at += i + len(l)
	}
}

// joins reports whether the text has the two next to each other.
func (l literal) joins(before, after rune) bool {
	return strings.Contains(string(l), string([]rune{before, after}))
}

// at depends on more than one character unless there is only one.
func (l literal) at(r rune) presence {
	switch {
	case !strings.ContainsRune(string(l), r):
		return outside
	case utf8.RuneCountInString(string(l)) == 1:
		return inside
	}
	return perhaps
}

// words finds runs of word characters, and runs of what is neither that nor white space.
type words struct{}

// each finds the runs, which is what \w+|[^\w\s]+ matches.
func (words) each(text string, yield func(start, end int)) {
	start, last := 0, blank
	for i, r := range text {
		kind := wordKindOf(r)
		if kind != last {
			if last != blank {
				yield(start, i)
			}
			start, last = i, kind
		}
	}
	if last != blank {
		yield(start, len(text))
	}
}

func (words) joins(before, after rune) bool {
	kind := wordKindOf(before)
	return kind != blank && kind == wordKindOf(after)
}

func (words) at(r rune) presence { return insideIf(wordKindOf(r) != blank) }

// wordKind is the class of a character in these runs.
type wordKind uint8

const (
	blank wordKind = iota
	wordChar
	symbolChar
)

// wordKindOf returns the kind of a character.
func wordKindOf(r rune) wordKind {
	switch {
	case unicode.IsSpace(r):
		return blank
	case chars.Word.Has(r):
		return wordChar
	}
	return symbolChar
}

// behavior is what becomes of the matches of a pattern that splits a text, as files write it.
type behavior string

const (
	removed            behavior = "Removed"
	isolated           behavior = "Isolated"
	contiguous         behavior = "Contiguous"
	mergedWithPrevious behavior = "MergedWithPrevious"
	mergedWithNext     behavior = "MergedWithNext"
)

// behaviors are all of them.
var behaviors = []behavior{removed, isolated, contiguous, mergedWithPrevious, mergedWithNext}

// valid reports whether the behavior is known.
func (b behavior) valid() bool { return slices.Contains(behaviors, b) }

// grows reports whether a span belongs to the piece of the one before it, by whether each was found.
func (b behavior) grows(before, found bool) bool {
	switch b {
	case contiguous:
		return found == before
	case mergedWithPrevious:
		return found && !before
	case mergedWithNext:
		return !found && before
	}
	return false
}
