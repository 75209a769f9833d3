package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/overlapd/overlapd/text/chars"
)

// Regular expressions of byte-level vocabularies that are widely used.
const (
	gpt2Regex   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	llama3Regex = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Regex  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// runs finds what GPT-2's expression finds, or one of the family of cl100k: contractions, and runs of
// letters, of digits, of white space and of the rest. The parts that it finds cover a text.
type runs struct {
	regex  // the expression; its finder is slower
	cl100k bool
	digits int // most digits in a run, 0 for any
}

// kind is the class of a character in these expressions.
type kind uint8

const (
	other kind = iota
	letter
	number
	space
	newline // CR or LF
)

// kinds has the kind of each character of ASCII.
var kinds = func() (kinds [utf8.RuneSelf]kind) {
	for r := range kinds {
		kinds[r] = kindOf(rune(r))
	}
	return kinds
}()

// kindOf returns the kind of a character.
func kindOf(r rune) kind {
	switch {
	case r == '\r', r == '\n':
		return newline
	case unicode.IsSpace(r):
		return space
	case chars.Letters.Has(r):
		return letter
	case chars.Numbers.Has(r):
		return number
	}
	return other
}

// kindAt returns the kind and the length of the character at a place, 0 at the end.
func kindAt(text string, at int) (kind, int) {
	if at == len(text) {
		return other, 0
	}
	if text[at] < utf8.RuneSelf {
		return kinds[text[at]], 1
	}
	r, size := utf8.DecodeRuneInString(text[at:])
	return kindOf(r), size
}

// gpt2 returns the finder of GPT-2's words.
var gpt2 = sync.OnceValue(func() pattern {
	expression := gpt2Regex
	p, err := patternSpec{Regex: &expression}.compile()
	if err != nil {
		panic(err) // the expression is valid
	}
	return p
})

// each finds the parts of a text.
func (f runs) each(text string, yield func(start, end int)) {
	for at := 0; at < len(text); {
		end := f.next(text, at)
		yield(at, end)
		at = end
	}
}

// next returns the end of the part that begins at a place.
func (f runs) next(text string, at int) int {
	if text[at] == '\'' {
		if end := f.contraction(text, at); end > at {
			return end
		}
	}
	// The alternatives of the expressions, in their order, by the kinds of this character and the next.
	k, size := kindAt(text, at)
	after, afterSize := kindAt(text, at+size)
	switch {
	case k == letter:
		return f.run(text, at, letter, 0)
	case f.cl100k && after == letter && (k == other || k == space):
		return f.run(text, at+size, letter, 0)
	case k == number:
		return f.run(text, at, number, f.digits)
	case k == other:
		return f.rest(text, at)
	case text[at] == ' ' && afterSize > 0 && after == other:
		return f.rest(text, at+size)
	case !f.cl100k && text[at] == ' ' && (after == letter || after == number):
		return f.run(text, at+size, after, 0)
	}
	return f.white(text, at)
}

// contraction returns the end of a contraction such as 's, or at if there is none. In the family of
// cl100k, case does not count; the long s folds to s.
func (f runs) contraction(text string, at int) int {
	// Two characters decide. The end of each is kept, since the long s has two bytes.
	var folded [3]byte
	n, ends := 0, [3]int{}
	for i, r := range text[at+1:] {
		if f.cl100k {
			if r == 'ſ' {
				r = 's'
			} else if 'A' <= r && r <= 'Z' {
				r += 'a' - 'A'
			}
		}
		if r >= utf8.RuneSelf || n == len(folded)-1 {
			break
		}
		folded[n] = byte(r)
		ends[n] = i + 1
		if text[at+1+i] >= utf8.RuneSelf {
			ends[n] = i + len("ſ")
		}
		n++
	}
	if n > 0 {
		switch folded[0] {
		case 's', 't', 'm', 'd':
			return at + 1 + ends[0]
		}
	}
	if n > 1 {
		switch string(folded[:2]) {
		case "re", "ve", "ll":
			return at + 1 + ends[1]
		}
	}
	return at
}

// run returns the end of a run of a kind, of at most some characters if most is not 0.
func (runs) run(text string, at int, of kind, most int) int {
	for n := 0; n < most || most == 0; n++ {
		k, size := kindAt(text, at)
		if size == 0 || k != of {
			break
		}
		at += size
	}
	return at
}

// rest returns the end of a run that is neither letters nor digits nor white space. Line ends that
// follow belong to it in the family of cl100k.
func (f runs) rest(text string, at int) int {
	at = f.run(text, at, other, 0)
	if f.cl100k {
		at = f.run(text, at, newline, 0)
	}
	return at
}

// white returns the end of white space: in the family of cl100k, behind its last line end; else where
// it ends, but for one character that is left to what follows.
func (f runs) white(text string, at int) int {
	end, last, lines := at, at, at
	for {
		k, size := kindAt(text, end)
		if size == 0 || k != space && k != newline {
			break
		}
		last = end
		end += size
		if k == newline {
			lines = end
		}
	}
	if f.cl100k && lines > at {
		return lines
	}
	if end < len(text) && last > at {
		return last
	}
	return end
}
