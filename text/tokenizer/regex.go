package tokenizer

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// regex finds what a regular expression of Oniguruma matches, by Go's package, which takes linear time
// and has no look-around. One look-ahead is in all files: white space leaves its last character to what
// follows, \s+(?!\S)|\s+ at the end of an expression. That is done here.
type regex struct {
	compiled *regexp.Regexp
}

// lookahead is the end of an expression that regex sees to.
const lookahead = `\s+(?!\S)|\s+`

// newRegex compiles an expression; those of the large families have finders of their own.
func newRegex(expression string) (pattern, error) {
	switch expression {
	case gpt2Regex:
		return runs{}, nil
	case llama3Regex:
		return runs{cl100k: true, digits: 3}, nil
	case qwen2Regex:
		return runs{cl100k: true, digits: 1}, nil
	}
	// Without the look-ahead, the end is one alternative, white space, which is marked as the only group.
	head, white := strings.CutSuffix(expression, lookahead)
	white = white && (head == "" || strings.HasSuffix(head, "|"))
	if white {
		head = strings.TrimSuffix(head, "|")
	} else {
		head = expression
	}
	t := translation{rest: head}
	if err := t.all(); err != nil {
		return nil, fmt.Errorf("regular expression %q: %w", expression, err)
	}
	out := t.out.String()
	switch {
	case white && head == "":
		out = `(` + spaceClass + `+)`
	case white:
		out = `(?:` + out + `)|(` + spaceClass + `+)`
	}
	compiled, err := regexp.Compile(out)
	if err != nil {
		return nil, fmt.Errorf("regular expression %q: %w", expression, err)
	}
	// Where empty matches are depends on the engine, and no known file has them.
	if compiled.MatchString("") {
		return nil, fmt.Errorf("regular expression %q matches the empty text", expression)
	}
	return regex{compiled}, nil
}

// each finds the matches, from the left. It may look for each from where the last has ended, since nothing
// that is supported looks back. White space that does not end the text leaves its last character: that is
// what the look-ahead comes to, as what follows a run of white space is not white space.
func (r regex) each(text string, yield func(start, end int)) {
	for at := 0; at < len(text); {
		found := r.compiled.FindStringSubmatchIndex(text[at:])
		if found == nil {
			return
		}
		start, end := at+found[0], at+found[1]
		if isWhite := len(found) > 2 && found[2] >= 0; isWhite && end < len(text) {
			if _, size := utf8.DecodeLastRuneInString(text[start:end]); size < end-start {
				end -= size
			}
		}
		yield(start, end)
		at = end
	}
}

// What the classes of Oniguruma are in Go's, inside of brackets.
var classes = map[string]string{
	"s":  `\t-\r\x{85}\p{Z}`,
	"d":  class("Nd", newNd),
	"w":  class("L", newLu, newLl, newLm, newLo) + class("M", newM) + class("Nd", newNd) + `\p{Nl}` + class("Pc", otherAlphabetic),
	"L":  class("L", newLu, newLl, newLm, newLo),
	"Lu": class("Lu", newLu),
	"Ll": class("Ll", newLl),
	"Lm": class("Lm", newLm),
	"Lo": class("Lo", newLo),
	"M":  class("M", newM),
	"N":  class("N", newNd),
	"Nd": class("Nd", newNd),
	"P":  class("P", newP),
	"S":  class("S", newS),
}

// spaceClass matches one character of white space.
var spaceClass = `[` + classes["s"] + `]`

// class writes a category of Unicode and ranges for the inside of brackets.
func class(category string, more ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `\p{%s}`, category)
	for _, one := range strings.Fields(strings.Join(more, " ")) {
		low, high, found := strings.Cut(one, "-")
		fmt.Fprintf(&b, `\x{%s}`, low)
		if found {
			fmt.Fprintf(&b, `-\x{%s}`, high)
		}
	}
	return b.String()
}

// translation writes an expression of Oniguruma, of Ruby's syntax, as one of Go's.
type translation struct {
	rest  string
	out   strings.Builder
	depth int // of brackets
}

// copied are the parts that mean the same in both, and the opening of groups, none of which captures.
// Those without a translation are refused: ^ and $ are the ends of lines in Ruby's syntax, {, is a count
// there and text in Go, and ?+, *+ and ++ never give back what they took.
var copied = []struct{ from, to string }{
	{`(?:`, `(?:`}, {`(?i:`, `(?i:`}, {`(?i)`, `(?i)`}, {`(?<`, ``}, {`(?`, ``}, {`(`, `(?:`},
	{`?+`, ``}, {`*+`, ``}, {`++`, ``}, {`{,`, ``}, {`^`, ``}, {`$`, ``},
}

// all translates the whole expression. What it does not know to mean the same in both, it refuses.
func (t *translation) all() error {
	for t.rest != "" {
		var err error
		switch c := t.rest[0]; {
		case c == '\\':
			err = t.escape()
		case c == '[':
			err = t.open()
		case t.depth > 0:
			err = t.inBrackets()
		default:
			err = t.outside()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take copies the next bytes, which mean the same in both.
func (t *translation) take(n int) {
	t.out.WriteString(t.rest[:n])
	t.rest = t.rest[n:]
}

// outside translates what begins outside of brackets.
func (t *translation) outside() error {
	for _, c := range copied {
		if rest, found := strings.CutPrefix(t.rest, c.from); found {
			if c.to == "" {
				return fmt.Errorf("%s is not supported; look-around is only as %s at the end", c.from, lookahead)
			}
			t.out.WriteString(c.to)
			t.rest = rest
			return nil
		}
	}
	_, size := utf8.DecodeRuneInString(t.rest)
	t.take(size)
	return nil
}

// open opens brackets. Those inside of others only add to them.
func (t *translation) open() error {
	t.depth++
	t.rest = t.rest[1:]
	negated := strings.HasPrefix(t.rest, "^")
	switch {
	case t.depth == 1:
		t.out.WriteByte('[')
		if negated {
			t.take(1)
		}
	case negated || strings.HasPrefix(t.rest, ":"):
		return fmt.Errorf("[%s inside of brackets is not supported", t.rest[:1])
	}
	if strings.HasPrefix(t.rest, "]") {
		return fmt.Errorf("brackets are empty, or begin with ]; write \\]")
	}
	return nil
}

// inBrackets translates what begins inside of brackets.
func (t *translation) inBrackets() error {
	switch {
	case t.rest[0] == ']':
		t.depth--
		if t.depth == 0 {
			t.out.WriteByte(']')
		}
		t.rest = t.rest[1:]
	case strings.HasPrefix(t.rest, "&&"):
		return fmt.Errorf("&& inside of brackets is not supported")
	default:
		_, size := utf8.DecodeRuneInString(t.rest)
		t.take(size)
	}
	return nil
}

// escape translates what follows a backslash.
func (t *translation) escape() error {
	if len(t.rest) < 2 {
		return fmt.Errorf("it ends in a backslash")
	}
	switch c := t.rest[1]; {
	case c == 'p' || c == 'P':
		name, rest, found := strings.Cut(t.rest[2:], "}")
		name, braced := strings.CutPrefix(name, "{")
		if !found || !braced {
			return fmt.Errorf("\\%c without a name in braces", c)
		}
		t.rest = rest
		name, negated := strings.CutPrefix(name, "^")
		return t.class(name, negated != (c == 'P'))
	case strings.IndexByte("sdw", c) >= 0:
		t.rest = t.rest[2:]
		return t.class(string(c), false)
	case strings.IndexByte("SDW", c) >= 0:
		t.rest = t.rest[2:]
		return t.class(string(c+'a'-'A'), true)
	case c == 'u' && len(t.rest) >= len(`\u0000`):
		t.out.WriteString(`\x{` + t.rest[2:6] + `}`)
		t.rest = t.rest[6:]
	case strings.IndexByte("rntfv", c) >= 0, isPunctuation(rune(c)), strings.HasPrefix(t.rest, `\x{`):
		t.take(2)
	case c == ' ':
		t.rest = t.rest[1:]
		t.take(1)
	default:
		return fmt.Errorf("\\%c is not supported", c)
	}
	return nil
}

// class writes a class of characters.
func (t *translation) class(name string, negated bool) error {
	inside, ok := classes[name]
	if !ok {
		inside = `\p{` + name + `}` // Go's package tells whether there is one
	}
	if name == "w" && t.depth == 0 {
		inside += class("Nd", latinNumbers) // only by itself: inside of brackets they are no part of words
	}
	switch {
	case t.depth == 0 && negated:
		t.out.WriteString(`[^` + inside + `]`)
	case t.depth == 0:
		t.out.WriteString(`[` + inside + `]`)
	case negated:
		return fmt.Errorf("the negated class %s inside of brackets is not supported", name)
	default:
		t.out.WriteString(inside)
	}
	return nil
}

// patternSpec is a pattern as files have it.
type patternSpec struct {
	String *string
	Regex  *string
}

// compile returns the pattern. Oniguruma would match an empty one between all characters.
func (s patternSpec) compile() (pattern, error) {
	switch {
	case s.String != nil && *s.String != "":
		return literal(*s.String), nil
	case s.Regex != nil:
		return newRegex(*s.Regex)
	}
	return nil, errors.New("a pattern is neither a String nor a Regex, or is empty")
}
