package http

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// Strings are read like encoding/json does, except that it repairs some strings which are
// rejected here.
func TestScannerStrings(t *testing.T) {
	for text, want := range map[string]string{
		`""`: "", `"a"`: "a", `  "a b"`: "a b", `"ä𝄞"`: "ä𝄞",
		`"\"\\\/\b\f\n\r\t"`: "\"\\/\b\f\n\r\t", `"\u0041\u00e4\u20AC"`: "Aä€", `"\ud834\udd1e"`: "𝄞", `"\uD834\uDD1Ex"`: "𝄞x",
		`"x\u0000y"`: "x\x00y", `"ä\nä"`: "ä\nä",
	} {
		s := scanner{b: []byte(text + ", rest")}
		got, err := s.str(nil)
		if err != nil || string(got) != want || !bytes.HasPrefix(s.b[s.i:], []byte(", rest")) {
			t.Errorf("%s: %q with %v, rest %q", text, got, err, s.b[s.i:])
		}
		var theirs string
		if json.Unmarshal([]byte(text), &theirs) != nil || theirs != want {
			t.Errorf("%s: encoding/json reads %q", text, theirs)
		}
	}
	for _, text := range []string{
		``, `a`, `"`, `"a`, `"\`, `"\"`, `"\x"`, `"\u"`, `"\u12"`, `"\u123`, `"\u123g"`, `"\U0041"`,
		"\"a\nb\"", "\"\\na\x01\"", "\"\xff\"", "\"\\n\xff\"", "\"\xc0\x80\"",
		`"\ud834"`, `"\ud834x"`, `"\ud834\n"`, `"\udd1e"`, `"\udd1e\ud834"`, `"\ud834\ud834"`, `"\ud834\u"`, `"\ud834\u12`, `"\n`,
	} {
		s := scanner{b: []byte(text)}
		if got, err := s.str(nil); err == nil {
			t.Errorf("%q is read as %q", text, got)
		}
	}
}

// Elements of a tensor are unescaped one behind the other.
func TestScannerStringsBehindScratch(t *testing.T) {
	scratch := []byte("before")
	s := scanner{b: []byte(`"a\tb"`)}
	got, err := s.str(scratch)
	if err != nil || string(got) != "a\tb" || string(scratch) != "before" {
		t.Errorf("%q behind %q: %v", got, scratch, err)
	}
}

func TestScannerNumbers(t *testing.T) {
	for text, integer := range map[string]bool{
		"0": true, "-0": true, "12": true, "-12": true, "123456789012345678901234567890": true,
		"0.5": false, "1e5": false, "1E+5": false, "1e-05": false, "-0.0e0": false,
	} {
		s := scanner{b: []byte(" " + text + "]")}
		token, whole, err := s.number()
		if err != nil || string(token) != text || whole != integer || s.b[s.i] != ']' {
			t.Errorf("%s: %q, whole %t, %v", text, token, whole, err)
		}
	}
	for _, text := range []string{"", "-", "+1", ".5", "1.", "1.e5", "1e", "1e+", "-a", "Infinity", "NaN", "0x"} {
		s := scanner{b: []byte(text)}
		if token, _, err := s.number(); err == nil && s.i == len(text) {
			t.Errorf("%q is the number %q", text, token)
		}
	}
	for text, want := range map[string]int64{"9223372036854775807": 1<<63 - 1, "-9223372036854775808": -1 << 63, "-0": 0} {
		s := scanner{b: []byte(text)}
		if got, err := s.integer("it"); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"9223372036854775808", "1.0", "1e2", `"1"`, "true", ""} {
		s := scanner{b: []byte(text)}
		if got, err := s.integer("it"); err == nil || !strings.Contains(err.Message, "it must be an integer") {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

// What is skipped must be JSON all the same.
func TestScannerSkips(t *testing.T) {
	for _, text := range []string{
		`null`, `true`, `false`, `0`, `-1.5e3`, `""`, `"\n"`, `[]`, `{}`, ` [ ] `, `[1,[2,{"a":[]}],"]"]`, `{"a":{"b":null},"c":[{}]}`,
		`nul`, `tru`, `[`, `{`, `[1`, `[1,`, `[1,]`, `[,]`, `[1 2]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{"a":1 "b":2}`, `{1:2}`, `{"a"`, `]`, `}`, `[}`, ``,
		`"a`, `01`, `[1}`,
	} {
		s := scanner{b: []byte(text)}
		err := s.skip()
		if err == nil {
			err = s.end()
		}
		if valid := json.Valid([]byte(text)); (err == nil) != valid {
			t.Errorf("%s: valid %t, skipped with %v", text, valid, err)
		}
	}
	for nested, ok := range map[int]bool{maxDepth: true, maxDepth + 1: false} {
		for _, open := range []string{"[", `{"a":`} {
			shut := map[string]string{"[": "]", `{"a":`: "}"}[open]
			s := scanner{b: []byte(strings.Repeat(open, nested-1) + "0" + strings.Repeat(shut, nested-1))}
			if err := s.skip(); (err == nil) != ok {
				t.Errorf("%d levels of %s: %v", nested, open, err)
			}
		}
	}
}

// The extent of an array is found by its brackets and strings alone.
func TestScannerExtent(t *testing.T) {
	for _, text := range []string{`[]`, `[1,2]`, `[[1],[2]]`, `["]"]`, `["\"]"]`, `["\\"]`, `[{"a":"}"}]`, `[,,]`} {
		s := scanner{b: []byte(" " + text + `,"next":[]`)}
		if got, err := s.extent(); err != nil || string(got) != text || s.b[s.i] != ',' {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{``, `1`, `{}`, `"[]"`, `[`, `[[]`, `["]`, `["\"]`, `["\`, strings.Repeat("[", maxDepth+1)} {
		s := scanner{b: []byte(text)}
		if got, err := s.extent(); err == nil {
			t.Errorf("%s: %q", text, got)
		}
	}
}
