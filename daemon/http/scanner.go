package http

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/overlapd/overlapd/daemon/query"
)

const (
	// maxDepth limits the nesting of arrays and objects, and so the recursion.
	maxDepth = 100

	// maxWord limits the length of a string with escapes, because it is copied.
	maxWord = 64 << 10

	// maxNumber limits the length of a number. An exact double needs about 1,100 digits at
	// most.
	maxNumber = 4 << 10
)

// scanner reads JSON from memory, as strictly as RFC 8259. b is the text, i the position of
// the next byte, and depth how many arrays and objects are open there. Each method skips
// leading space and reads one construct.
type scanner struct {
	b     []byte
	i     int
	depth int
}

// fail returns an error at the current position.
func (s *scanner) fail(what string) *query.Error {
	return query.Invalid("JSON, byte %d: %s", s.i, what)
}

// peek skips space and returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// take reads c if it is the next byte, and reports whether it was.
func (s *scanner) take(c byte) bool {
	// peek returns 0 at the end, which must not match a NUL byte.
	if s.peek() != c || s.i >= len(s.b) {
		return false
	}
	s.i++
	return true
}

// want reads c, or returns an error.
func (s *scanner) want(c byte) *query.Error {
	if !s.take(c) {
		return s.fail("expected " + strconv.QuoteRune(rune(c)))
	}
	return nil
}

// end returns an error unless only space is left.
func (s *scanner) end() *query.Error {
	if s.peek(); s.i < len(s.b) {
		return s.fail("the request continues after its end")
	}
	return nil
}

// more is called before each element of an array or object and reads the comma. At the end
// it reads the closing byte and returns false.
func (s *scanner) more(first bool, closing byte) (bool, *query.Error) {
	if s.take(closing) {
		return false, nil
	}
	if first {
		return true, nil
	}
	if err := s.want(','); err != nil {
		return false, err
	}
	if s.peek() == closing {
		return false, s.fail("there is nothing after the comma")
	}
	return true, nil
}

// each calls element for each element of an array or object whose opening byte has been
// read, and reads the closing byte.
func (s *scanner) each(closing byte, element func() *query.Error) *query.Error {
	s.depth++
	for first := true; ; first = false {
		if more, err := s.more(first, closing); !more || err != nil {
			s.depth--
			return err
		}
		if err := element(); err != nil {
			return err
		}
	}
}

// key reads the name of a member and the colon.
func (s *scanner) key() ([]byte, *query.Error) {
	k, err := s.str(nil)
	if err != nil {
		return nil, err
	}
	return k, s.want(':')
}

// str reads a string. The result points into the text if it has no escapes. Otherwise it is
// appended to scratch, and its length is limited to maxWord or the capacity of scratch.
func (s *scanner) str(scratch []byte) ([]byte, *query.Error) {
	text, escapes, err := s.pass()
	if !escapes || err != nil {
		return text, err
	}
	// Strings of tensors have scratch of a known size; only names are limited by maxWord.
	if len(text) > max(maxWord, cap(scratch)) {
		return nil, s.fail("a name has escapes in more than " + strconv.Itoa(maxWord) + " bytes")
	}
	v := scratch
	for in := (scanner{b: text}); in.i < len(text); {
		c := text[in.i]
		in.i++
		if c != '\\' {
			v = append(v, c)
			continue
		}
		r, _ := in.escape() // pass has validated it
		v = utf8.AppendRune(v, r)
	}
	return v[len(scratch):], nil
}

// pass reads a string without decoding it and reports whether it has escapes.
func (s *scanner) pass() (text []byte, escapes bool, err *query.Error) {
	if s.want('"') != nil {
		return nil, false, s.fail("expected a string")
	}
	for start := s.i; s.i < len(s.b); {
		c := s.b[s.i]
		s.i++
		switch {
		case c == '"':
			text = s.b[start : s.i-1]
			if !utf8.Valid(text) { // escapes are ASCII, so they cannot split a character
				return nil, false, s.fail("a string is not UTF-8")
			}
			return text, escapes, nil
		case c < ' ':
			return nil, false, s.fail("a string contains a control character")
		case c == '\\':
			escapes = true
			if _, err := s.escape(); err != nil {
				return nil, false, err
			}
		}
	}
	return nil, false, s.fail("a string does not end")
}

// escape reads an escape sequence behind its backslash. A surrogate pair is one rune; half
// a pair is an error.
func (s *scanner) escape() (rune, *query.Error) {
	if s.i >= len(s.b) {
		return 0, s.fail("a string does not end")
	}
	c := s.b[s.i]
	s.i++
	if at := bytes.IndexByte([]byte(`"\/bfnrt`), c); at >= 0 {
		return rune("\"\\/\b\f\n\r\t"[at]), nil
	}
	if c != 'u' {
		return 0, s.fail("a string contains an unknown escape")
	}
	r, err := s.hex4()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if bytes.HasPrefix(s.b[s.i:], []byte(`\u`)) {
		s.i += 2
		low, err := s.hex4()
		if err != nil {
			return 0, err
		}
		// DecodeRune returns the error rune for anything but a valid pair.
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			return r, nil
		}
	}
	return 0, s.fail("a string contains half of a surrogate pair")
}

// hex4 reads four hexadecimal digits.
func (s *scanner) hex4() (rune, *query.Error) {
	if len(s.b)-s.i < 4 {
		return 0, s.fail("a string does not end")
	}
	r, err := strconv.ParseUint(string(s.b[s.i:s.i+4]), 16, 16)
	if err != nil {
		return 0, s.fail("a string contains an unknown escape")
	}
	s.i += 4
	return rune(r), nil
}

// number reads a number. integer is false if it has a fraction or an exponent.
func (s *scanner) number() (token []byte, integer bool, err *query.Error) {
	s.peek()
	start := s.i
	if s.i < len(s.b) && s.b[s.i] == '-' {
		s.i++
	}
	switch {
	case s.i < len(s.b) && s.b[s.i] == '0':
		s.i++
	case s.digits() == 0:
		return nil, false, s.fail("expected a number")
	}
	integer = true
	if s.i < len(s.b) && s.b[s.i] == '.' {
		integer = false
		s.i++
		if s.digits() == 0 {
			return nil, false, s.fail("a number ends in a point")
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		integer = false
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if s.digits() == 0 {
			return nil, false, s.fail("a number has an empty exponent")
		}
	}
	if s.i-start > maxNumber {
		return nil, false, s.fail("a number of more than " + strconv.Itoa(maxNumber) + " bytes")
	}
	return s.b[start:s.i], integer, nil
}

// digits reads digits and returns their number.
func (s *scanner) digits() int {
	start := s.i
	// Bytes below '0' wrap around, so one comparison covers both ends.
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		s.i++
	}
	return s.i - start
}

// integer reads an integer of 64 bits. what names the value in errors.
func (s *scanner) integer(what string) (int64, *query.Error) {
	token, whole, err := s.number()
	if err != nil {
		return 0, query.Invalid("%s must be an integer (byte %d)", what, s.i)
	}
	v, failed := strconv.ParseInt(string(token), 10, 64)
	if !whole || failed != nil {
		return 0, query.Invalid("%s must be an integer of 64 bits, not %s", what, query.Cut(token))
	}
	return v, nil
}

// boolean reads true or false. what names the value in errors.
func (s *scanner) boolean(what string) (bool, *query.Error) {
	s.peek()
	switch {
	case s.literal("true"):
		return true, nil
	case s.literal("false"):
		return false, nil
	}
	return false, query.Invalid("%s must be true or false (byte %d)", what, s.i)
}

// literal reads word if it comes next, and reports whether it did.
func (s *scanner) literal(word string) bool {
	if !bytes.HasPrefix(s.b[s.i:], []byte(word)) {
		return false
	}
	s.i += len(word)
	return true
}

// skip reads and discards any value.
func (s *scanner) skip() *query.Error {
	if s.depth >= maxDepth {
		return s.fail("nested deeper than " + strconv.Itoa(maxDepth))
	}
	switch s.peek() {
	case '{':
		return s.skipElements('}')
	case '[':
		return s.skipElements(']')
	case '"':
		_, _, err := s.pass()
		return err
	}
	if s.literal("true") || s.literal("false") || s.literal("null") {
		return nil
	}
	_, _, err := s.number()
	return err
}

// skipElements reads and discards an object or an array.
func (s *scanner) skipElements(closing byte) *query.Error {
	s.i++
	return s.each(closing, func() *query.Error {
		if closing == '}' {
			if _, _, err := s.pass(); err != nil {
				return err
			}
			if err := s.want(':'); err != nil {
				return err
			}
		}
		return s.skip()
	})
}

// extent finds the end of an array, looking only at strings and brackets. The elements are
// validated when they are parsed later, so each byte is parsed once.
func (s *scanner) extent() ([]byte, *query.Error) {
	if s.peek() != '[' {
		return nil, s.fail(`"data" must be an array`)
	}
	start, depth := s.i, s.depth
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case '[', '{':
			if depth++; depth > maxDepth {
				return nil, s.fail("nested deeper than " + strconv.Itoa(maxDepth))
			}
		case ']', '}':
			if depth--; depth == s.depth {
				s.i++
				return s.b[start:s.i], nil
			}
		case '"':
			if err := s.skipString(); err != nil {
				return nil, err
			}
			continue
		}
		s.i++
	}
	return nil, s.fail("an array does not end")
}

// skipString finds the end of a string without validating it.
func (s *scanner) skipString() *query.Error {
	for s.i++; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '"':
			s.i++
			return nil
		case '\\':
			s.i++
		}
	}
	return s.fail("a string does not end")
}
