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

// Limits of what is kept and passed on of a process's output.
const (
	TailBytes = 8 << 10 // kept for the error that its end produces
	LineBytes = 4 << 10 // the limit of one line; a longer one is split

	// What a well-behaved process writes is rarely more than the trace of a
	// crash. Lines beyond a burst are passed on at a rate that a log can bear.
	lineBurst = 1024
	lineEvery = 10 * time.Millisecond
)

// tail keeps the last bytes of what a process wrote, and the last line in which the Go
// runtime said why it ends: stacks and registers, which follow, may push that out.
type tail struct {
	mu struct {
		sync.Mutex
		data  []byte
		cut   bool // the beginning is missing
		crash []byte
	}
}

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

// Lines reads r to its end and passes its lines on, as those of a process.
func Lines(r io.Reader, pass func(string)) { new(tail).listen(r, pass) }

// listen reads r to its end, keeps the tail and passes lines on, at a limited rate,
// and how many of them were left out. pass is nil if nobody listens.
func (t *tail) listen(r io.Reader, pass func(string)) {
	limit, out := rate.NewLimiter(rate.Every(lineEvery), lineBurst), 0
	confess := func() {
		if out > 0 {
			pass(fmt.Sprintf("(%d lines were left out: the process writes too much)", out))
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

// colours are the sequences by which ONNX Runtime paints its warnings, whatever it
// writes them to. In a log file they would only be in the way.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// plain leaves out colours. It asks first whether there are any, because a process may
// write faster than the expression is matched.
func plain(text []byte) []byte {
	if bytes.IndexByte(text, '\x1b') < 0 {
		return text
	}
	return colours.ReplaceAll(text, nil)
}

// crashes are how the lines begin with which the Go runtime says why it ends. What
// follows them is where: stacks and registers, which an error has no room for.
var crashes = []string{"panic: ", "fatal error: ", "unexpected fault address", "SIG"}

func crashed(line string) bool {
	return slices.ContainsFunc(crashes, func(begin string) bool { return strings.HasPrefix(line, begin) })
}

// Excerpt returns the last n lines of a text on one line; or the first in which the Go
// runtime says why the process ends, with the signal if that is on the next one, and
// with what a library that aborts wrote before. Empty lines do not count.
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
