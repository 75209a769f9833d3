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

// tail keeps the last bytes of what a process wrote.
type tail struct {
	mu struct {
		sync.Mutex
		data []byte
		cut  bool // the beginning is missing
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
	return strings.ToValidUTF8(string(colours.ReplaceAll(data, nil)), "?")
}

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
		text = colours.ReplaceAll(bytes.TrimRight(text, "\r"), nil)
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

// crashes are how the lines begin with which the Go runtime says why it ends.
// What follows them is where, which is of less use on one line.
var crashes = []string{"panic: ", "fatal error: ", "unexpected fault address", "SIG"}

// Excerpt returns the last n lines of a text on one line, or n lines from where
// the Go runtime says why the process ends. Empty lines do not count.
func Excerpt(text string, n int) string {
	var lines []string
	crash := -1
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		begins := func(with string) bool { return strings.HasPrefix(line, with) }
		if crash < 0 && slices.ContainsFunc(crashes, begins) {
			crash = len(lines)
		}
		lines = append(lines, line)
	}
	first := max(0, len(lines)-n)
	if crash >= 0 {
		first = min(first, crash)
	}
	return strings.Join(lines[first:min(len(lines), first+n)], " | ")
}
