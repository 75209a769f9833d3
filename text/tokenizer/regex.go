package tokenizer

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/overlapd/overlapd/text/chars"
)

// regex finds the matches of a regular expression of Oniguruma with Go's package regexp, which takes linear
// time and has no look-around. One look-ahead is in nearly all files, \s+(?!\S)|\s+ at the end of an
// expression: white space leaves its last character to what follows. It is implemented here.
type regex struct {
	compiled *regexp.Regexp
	program  *syntax.Prog
	white    bool // ends with the look-ahead
}

// lookahead is the end of an expression that regex implements.
const lookahead = `\s+(?!\S)|\s+`

// whiteSpace is the class of white space in brackets.
var whiteSpace = `[` + chars.Class("s", false) + `]`

// compile compiles an expression.
func compile(expression string) (r regex, err error) {
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
		return r, fmt.Errorf("regular expression %q: %w", expression, err)
	}
	out := t.out.String()
	switch {
	case white && head == "":
		out = `(` + whiteSpace + `+)`
	case white:
		out = `(?:` + out + `)|(` + whiteSpace + `+)`
	}
	r.white = white
	if r.compiled, err = regexp.Compile(out); err != nil {
		return r, fmt.Errorf("regular expression %q: %w", expression, err)
	}
	// Where empty matches are depends on the engine, and no known file has them.
	if r.compiled.MatchString("") {
		return r, fmt.Errorf("regular expression %q matches the empty text", expression)
	}
	parsed, err := syntax.Parse(out, syntax.Perl)
	if err == nil {
		r.program, err = syntax.Compile(parsed.Simplify())
	}
	return r, err
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

// joins reports whether some match has the two characters next to each other, by the instructions of the
// program: one that takes the first is followed by one that takes the second. There are no assertions, so
// that nothing else of a match depends on what is around it, but for the look-ahead: white space leaves its
// last character only to what follows.
func (r regex) joins(before, after rune) bool {
	if r.white && unicode.IsSpace(before) {
		return true
	}
	seen := make([]bool, len(r.program.Inst))
	var reaches func(at uint32) bool
	reaches = func(at uint32) bool {
		if seen[at] {
			return false
		}
		seen[at] = true
		switch in := &r.program.Inst[at]; in.Op {
		case syntax.InstFail, syntax.InstMatch:
			return false
		case syntax.InstAlt, syntax.InstAltMatch:
			return reaches(in.Out) || reaches(in.Arg)
		case syntax.InstCapture, syntax.InstNop, syntax.InstEmptyWidth:
			return reaches(in.Out)
		default:
			return takes(in, after)
		}
	}
	for i := range r.program.Inst {
		if in := &r.program.Inst[i]; takes(in, before) && reaches(in.Out) {
			return true
		}
	}
	return false
}

// at reports inside if the character is a match by itself, since the leftmost match at its place is then
// not empty, and outside if no match has it.
func (r regex) at(c rune) presence {
	if r.compiled.MatchString(string(c)) {
		return inside
	}
	for i := range r.program.Inst {
		if takes(&r.program.Inst[i], c) {
			return perhaps
		}
	}
	return outside
}

// takes reports whether an instruction takes a character.
func takes(in *syntax.Inst, r rune) bool {
	switch in.Op {
	case syntax.InstRune, syntax.InstRune1:
		return in.MatchRune(r)
	case syntax.InstRuneAny:
		return true
	case syntax.InstRuneAnyNotNL:
		return r != '\n'
	}
	return false
}

// translation writes an expression of Oniguruma, of Ruby's syntax, as one of Go's.
type translation struct {
	rest  string
	out   strings.Builder
	depth int // of brackets
}

// copied are the parts that mean the same in both, and the opening of groups, none of which captures.
// Those without a translation are rejected: ^ and $ are the ends of lines in Ruby's syntax, {, is a count
// there and text in Go, and ?+, *+ and ++ never give back what they took.
var copied = []struct{ from, to string }{
	{`(?:`, `(?:`}, {`(?i:`, `(?i:`}, {`(?i)`, `(?i)`}, {`(?<`, ``}, {`(?`, ``}, {`(`, `(?:`},
	{`?+`, ``}, {`*+`, ``}, {`++`, ``}, {`{,`, ``}, {`^`, ``}, {`$`, ``},
}

// optionalCount is a count that is optional in Ruby's syntax, and lazy in Go's.
var optionalCount = regexp.MustCompile(`^\{[0-9]+\}\?`)

// all translates the whole expression. It rejects what may have another meaning in Go.
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
			if c.from == `(?i)` && t.out.Len() > 0 { // in Ruby's syntax a(?i)b|c is a(?i:b|c)
				return fmt.Errorf("(?i) is supported only at the start; write (?i:…)")
			}
			t.out.WriteString(c.to)
			t.rest = rest
			return nil
		}
	}
	if count := optionalCount.FindString(t.rest); count != "" {
		return fmt.Errorf("%s is not supported; write (?:…%s)?", count, strings.TrimSuffix(count, "?"))
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
	case strings.IndexByte("rntfv", c) >= 0, chars.IsPunctuation(rune(c)), strings.HasPrefix(t.rest, `\x{`):
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
	inside := chars.Class(name, t.depth == 0)
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
