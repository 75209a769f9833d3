package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// forTerminal returns where to write what goes to a file that may be a terminal.
func forTerminal(f *os.File) io.Writer {
	if term.IsTerminal(int(f.Fd())) {
		return &harmless{to: f}
	}
	return f
}

// harmless writes text of others to a terminal: names in a model, what ONNX Runtime
// said of it, what a daemon answered. What would do something to the terminal, or
// have text look like another one, is written as an escape.
type harmless struct {
	to   io.Writer
	rest []byte // of a character whose other bytes are still to come
}

// Write implements io.Writer.
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

// appendHarmless appends a character, or an escape that stands for it.
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

// outliveLog makes writing to a log that nobody reads any more an error of that
// writing. Go ends a program by SIGPIPE for it, which is right for a command
// and wrong for a daemon: who reads its log may be restarted. The signal is
// caught, not ignored, for children would inherit that.
func outliveLog() (release func()) {
	pipes := make(chan os.Signal, 1) // nobody reads it; what is too much is dropped
	signal.Notify(pipes, unix.SIGPIPE)
	return func() { signal.Stop(pipes) }
}
