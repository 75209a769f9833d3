package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"unicode"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// output is how a command prints its result: as text, or with --json as one JSON
// object.
type output struct{ json bool }

func (o *output) flag(f *pflag.FlagSet) {
	f.BoolVar(&o.json, "json", false, "print one JSON object")
}

func (o *output) print(w io.Writer, v any, writeText func(io.Writer) error) error {
	if o.json {
		return printJSON(w, v)
	}
	return writeText(w)
}

// printJSON writes v as the one JSON object that a command prints.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// newBar returns a progress bar on standard error, silent unless that is a
// terminal. It is for looks: whoever moves it ignores its errors.
func newBar(what string, total int, options ...progressbar.Option) *progressbar.ProgressBar {
	to := io.Discard
	if term.IsTerminal(int(os.Stderr.Fd())) {
		to = os.Stderr
	}
	return progressbar.NewOptions(max(total, 1), append(options,
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWriter(to),
		progressbar.OptionShowCount(),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionClearOnFinish(),
	)...)
}

// permille is the number of steps of a bar that shows a part.
const permille = 1000

// showPart moves a bar to a part of the work, 0 to 1.
func showPart(bar *progressbar.ProgressBar, doing string, done float64) {
	bar.ChangeMax(permille)
	bar.Describe(doing)
	_ = bar.Set(min(int(math.Round(done*permille)), permille-1)) // a full bar would end its line
}

// forTerminal returns a writer to a file, through harmless if it is a terminal.
func forTerminal(f *os.File) io.Writer {
	if term.IsTerminal(int(f.Fd())) {
		return &harmless{to: f}
	}
	return f
}

// harmless writes text that others made to a terminal: names in a model, errors of
// ONNX Runtime, answers of a daemon. Characters that control a terminal, or that
// make a text look like another one, are written as escapes. The first bytes of a
// character that Write ends in wait in rest for the others.
type harmless struct {
	to   io.Writer
	rest []byte
}

func (h *harmless) Write(p []byte) (int, error) {
	text := append(h.rest, p...)
	h.rest = nil
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			h.rest = append(h.rest, text...)
			break
		}
		r, size := utf8.DecodeRune(text)
		out = appendHarmless(out, r, text[:size])
		text = text[size:]
	}
	if _, err := h.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func appendHarmless(out []byte, r rune, encoded []byte) []byte {
	switch {
	case r == utf8.RuneError && len(encoded) == 1:
		return fmt.Appendf(out, `\x%02x`, encoded[0])
	case r == '\n', r == '\t':
	case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
		return fmt.Appendf(out, `\u%04x`, r)
	}
	return append(out, encoded...)
}

// outliveLog makes a write to a log without a reader fail. Without it Go ends the
// program by SIGPIPE, which is right for a command and wrong for a daemon, whose
// log collector may be restarted. The signal is caught and not ignored because
// children inherit what is ignored.
func outliveLog() (release func()) {
	pipes := make(chan os.Signal, 1) // never read; a full channel drops signals
	signal.Notify(pipes, unix.SIGPIPE)
	return func() { signal.Stop(pipes) }
}
