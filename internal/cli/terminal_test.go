package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestHarmless(t *testing.T) {
	for in, want := range map[string]string{
		"a name\tof a service\n": "a name\tof a service\n",
		"ä € 𝄞 日本":               "ä € 𝄞 日本",
		"\x1b[2J\x1b]0;title\a":  `\u001b[2J\u001b]0;title\u0007`,
		"one\rtwo":               `one\u000dtwo`,
		"\u009b31m":              `\u009b31m`,
		"\x9b31m":                `\x9b31m`,
		"user\u202efdp.exe":      `user\u202efdp.exe`,
		"\u2028":                 `\u2028`,
		"\x00\x7f\xff\xc3(":      `\u0000\u007f\xff\xc3(`,
		"":                       "",
	} {
		var out bytes.Buffer
		h := &harmless{to: &out}
		if n, err := io.WriteString(h, in); n != len(in) || err != nil || out.String() != want {
			t.Errorf("%q: %q, %d, %v, want %q", in, out.String(), n, err, want)
		}
	}
}

// However text is cut into pieces, the same is written, and nothing of it does
// anything.
func TestHarmlessInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.SampledFrom([]byte("a\n\t\x1b\x9b\xc2\xe2\x80\xae\xf0\x9d\x84\x9e\xff"))).Draw(t, "text")
		var whole, pieces bytes.Buffer
		_, _ = (&harmless{to: &whole}).Write(text)
		h := &harmless{to: &pieces}
		for rest := text; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			_, _ = h.Write(rest[:n])
			rest = rest[n:]
		}
		if whole.String() != pieces.String() || !utf8.Valid(whole.Bytes()) {
			t.Fatalf("%q in pieces is %q, whole %q", text, pieces.String(), whole.String())
		}
		for _, r := range whole.String() {
			if r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
				t.Fatalf("%q has %q", whole.String(), r)
			}
		}
	})
}

// A writer that fails is told of.
func TestHarmlessFails(t *testing.T) {
	broken := errors.New("broken")
	if _, err := (&harmless{to: failing{broken}}).Write([]byte("x")); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// A file is written as it is: another program reads it.
func TestFilesAreWrittenAsTheyAre(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if w := ForTerminal(f); w != io.Writer(f) {
		t.Errorf("it is written through %T", w)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
