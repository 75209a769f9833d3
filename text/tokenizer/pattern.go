package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// pattern finds parts of a text, which follow one another and are not empty.
type pattern interface {
	each(text string, yield func(start, end int))
}

// chars finds each character of a kind by itself.
type chars func(rune) bool

// each finds every character of the kind.
func (c chars) each(text string, yield func(start, end int)) {
	for i, r := range text {
		if c(r) {
			yield(i, i+utf8.RuneLen(r))
		}
	}
}

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

// words finds runs of word characters, and runs of what is neither that nor white space.
type words struct{}

// each finds the runs, which is what \w+|[^\w\s]+ matches.
func (words) each(text string, yield func(start, end int)) {
	const space, word, other = 0, 1, 2
	start, last := 0, space
	for i, r := range text {
		kind := other
		switch {
		case unicode.IsSpace(r):
			kind = space
		case wordChars.has(r):
			kind = word
		}
		if kind != last {
			if last != space {
				yield(start, i)
			}
			start, last = i, kind
		}
	}
	if last != space {
		yield(start, len(text))
	}
}
