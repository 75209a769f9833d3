package child

import (
	"bytes"
	"fmt"
	"os"
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

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.data = append(t.mu.data, p...)
	if excess := len(t.mu.data) - TailBytes; excess > 0 {
		t.mu.data = append(t.mu.data[:0], t.mu.data[excess:]...)
		t.mu.cut = true
	}
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	data := t.mu.data
	if end := bytes.IndexByte(data, '\n'); t.mu.cut && end >= 0 {
		data = data[end+1:]
	}
	return strings.ToValidUTF8(string(data), "?")
}

// listen reads r to its end, keeps the tail and passes lines on.
func (t *tail) listen(r *os.File, line func(string)) {
	l := lines{pass: line, limit: rate.NewLimiter(rate.Every(lineEvery), lineBurst)}
	buf := make([]byte, LineBytes)
	held := 0 // bytes of a line that has not ended
	for {
		n, err := r.Read(buf[held:])
		t.add(buf[held : held+n])
		held = l.split(buf, held+n)
		if err != nil {
			break
		}
	}
	l.take(buf[:held])
	l.confess()
}

// lines passes on what a process writes, at a limited rate, and how much of it
// was left out.
type lines struct {
	pass  func(string) // nil if nobody listens
	limit *rate.Limiter
	out   int // lines left out since the last that was not
}

// split takes the lines in buf[:n], moves the rest to the front, and returns how
// long that is.
func (l *lines) split(buf []byte, n int) (held int) {
	rest := buf[:n]
	for {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			break
		}
		l.take(rest[:end])
		rest = rest[end+1:]
	}
	if len(rest) == len(buf) {
		l.take(rest)
		return 0
	}
	return copy(buf, rest)
}

func (l *lines) take(text []byte) {
	text = bytes.TrimRight(text, "\r\n")
	switch {
	case len(text) == 0 || l.pass == nil:
	case !l.limit.Allow():
		l.out++
	default:
		l.confess()
		l.pass(strings.ToValidUTF8(string(text), "?"))
	}
}

// confess writes how many lines were left out since the last that was not.
func (l *lines) confess() {
	if l.out > 0 {
		l.pass(fmt.Sprintf("(%d lines were left out: the process writes too much)", l.out))
		l.out = 0
	}
}

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
