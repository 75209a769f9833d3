package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	barColumns = 24
	// barEvery is the shortest time between two drawings.
	barEvery = 100 * time.Millisecond
)

// Bar returns a function that shows what a command does and how much of it is done, 0 to 1, and one
// that removes what is shown. Both are silent unless standard error is a terminal.
func Bar() (show func(doing string, done float64), end func()) {
	columns, _, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil {
		return func(string, float64) {}, func() {}
	}
	var shown time.Time
	show = func(doing string, done float64) {
		if time.Since(shown) < barEvery {
			return
		}
		shown = time.Now()
		// Names in doing may come from others.
		var plain strings.Builder
		_, _ = io.WriteString(Harmless(&plain), doing)
		text := []rune(plain.String())
		text = text[:min(len(text), max(columns-barColumns-8, 0))]
		done = min(max(done, 0), 1)
		full := int(done * barColumns)
		fmt.Fprintf(os.Stderr, "\r%s [%s%s] %3.0f %%\x1b[K", string(text), strings.Repeat("█", full), strings.Repeat(" ", barColumns-full), 100*done)
	}
	return show, func() { fmt.Fprint(os.Stderr, "\r\x1b[K") }
}

// ForTerminal returns a writer to a file, through [Harmless] if it is a terminal.
func ForTerminal(f *os.File) io.Writer {
	if term.IsTerminal(int(f.Fd())) {
		return Harmless(f)
	}
	return f
}

// Columns returns how many columns the terminal has that is written to, 0 for none.
func Columns(w io.Writer) int {
	h, ok := w.(*harmless)
	if !ok {
		return 0
	}
	f, ok := h.to.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// Harmless returns a writer that writes text which others made to a terminal.
func Harmless(to io.Writer) io.Writer { return &harmless{to: to} }

// Behind returns the terminal that a writer of [Harmless] writes to. Without one it returns w.
func Behind(w io.Writer) (to io.Writer, terminal bool) {
	if h, ok := w.(*harmless); ok {
		return h.to, true
	}
	return w, false
}

// harmless writes text that others made, such as names in a model, to a terminal.
// Characters that control it, or make a text look like another one, become escapes. The
// first bytes of a character that Write ends in wait in rest for the others.
type harmless struct {
	to   io.Writer
	rest []byte
}

func (h *harmless) Write(p []byte) (int, error) {
	text := append(h.rest, p...)
	h.rest = nil
	out := make([]byte, 0, len(text))
	for size := 0; len(text) > 0; text = text[size:] {
		if !utf8.FullRune(text) {
			h.rest = append(h.rest, text...)
			break
		}
		var r rune
		switch r, size = utf8.DecodeRune(text); {
		case r == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:size]...)
		}
	}
	if _, err := h.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
