package child

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits on the output of a process.
const (
	// TailBytes is how much output is kept for the error that reports the exit.
	TailBytes = 8 << 10

	// LineBytes limits one line. A longer one is split.
	LineBytes = 4 << 10

	// A well-behaved process rarely writes more than the trace of a crash, which
	// fits the burst. Further lines are passed on at a rate that a log can take.
	lineBurst = 1024
	lineEvery = 10 * time.Millisecond
)

// tail keeps the end of a process's output, and the last line in which the Go
// runtime gave the reason of a crash. The stacks and registers that follow that
// line may exceed TailBytes.
type tail struct {
	mu struct {
		sync.Mutex
		data []byte

		// cut is set once the beginning of the output was dropped.
		cut   bool
		crash []byte
	}
}

// Write appends p and drops all but the last TailBytes. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.data = append(t.mu.data, p...)
	if excess := len(t.mu.data) - TailBytes; excess > 0 {
		t.mu.data = append(t.mu.data[:0], t.mu.data[excess:]...)
		t.mu.cut = true
	}
	return len(p), nil
}

// text returns the tail as valid UTF-8, preceded by the crash line if that was
// dropped.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	data := t.mu.data
	if end := bytes.IndexByte(data, '\n'); t.mu.cut && end >= 0 {
		data = data[end+1:]
	}
	if t.mu.cut && !bytes.Contains(data, t.mu.crash) {
		data = slices.Concat(t.mu.crash, []byte("\n"), data)
	}
	return strings.ToValidUTF8(string(plain(data)), "?")
}

// Lines reads r to its end and passes on its lines under the same limits as those of
// a process.
func Lines(r io.Reader, pass func(string)) { new(tail).listen(r, pass) }

// listen reads r to its end, keeps the tail and passes lines on at a limited rate.
// It also reports how many lines it dropped. pass may be nil.
func (t *tail) listen(r io.Reader, pass func(string)) {
	limit, out := rate.NewLimiter(rate.Every(lineEvery), lineBurst), 0
	confess := func() {
		if out > 0 {
			pass(fmt.Sprintf("(%d lines were dropped: the process writes too much)", out))
			out = 0
		}
	}
	lines := bufio.NewReaderSize(io.TeeReader(r, t), LineBytes)
	for {
		text, _, err := lines.ReadLine()
		if err != nil {
			break
		}
		text = plain(bytes.TrimRight(text, "\r"))
		if crashed(string(text)) {
			t.mu.Lock()
			t.mu.crash = append(t.mu.crash[:0], text...)
			t.mu.Unlock()
		}
		switch {
		case len(text) == 0 || pass == nil:
		case !limit.Allow():
			out++
		default:
			confess()
			pass(strings.ToValidUTF8(string(text), "?"))
		}
	}
	confess()
}

// colours matches the escape sequences with which ONNX Runtime colours its warnings
// even if it does not write to a terminal.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// plain removes colours. It looks for an escape byte first, because a process may
// write faster than the expression matches.
func plain(text []byte) []byte {
	if bytes.IndexByte(text, '\x1b') < 0 {
		return text
	}
	return colours.ReplaceAll(text, nil)
}

// crashes lists how lines begin in which the Go runtime gives the reason of a crash.
// After them come only stacks and registers, which are too long for an error.
var crashes = []string{"panic: ", "fatal error: ", "unexpected fault address", "SIG"}

func crashed(line string) bool {
	return slices.ContainsFunc(crashes, func(begin string) bool { return strings.HasPrefix(line, begin) })
}

// Excerpt returns the last n non-empty lines of a text, joined into one. If the Go
// runtime gave the reason of a crash, it returns that line instead, with the signal
// if the next line names it. For SIGABRT it keeps the lines before as well, because
// a library that aborts writes its reason there.
func Excerpt(text string, n int) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	if at := slices.IndexFunc(lines, crashed); at >= 0 {
		end := at + 1
		if end < len(lines) && strings.HasPrefix(lines[end], "[signal ") {
			end++
		}
		if !strings.HasPrefix(lines[at], "SIGABRT") {
			n = end - at
		}
		lines = lines[:end]
	}
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
