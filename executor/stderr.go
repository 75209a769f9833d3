package executor

import (
	"bytes"
	"os"
	"strings"
	"sync"
)

// Limits of what is kept of a worker's standard error.
const (
	tailBytes = 8 << 10 // for the error that a crash produces
	lineBytes = 4 << 10 // of one line; a longer one is split
)

// tail keeps the last bytes of what a worker wrote.
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
	if excess := len(t.mu.data) - tailBytes; excess > 0 {
		t.mu.data = append(t.mu.data[:0], t.mu.data[excess:]...)
		t.mu.cut = true
	}
}

// text returns what is kept, without a line whose beginning is missing.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	data := t.mu.data
	if end := bytes.IndexByte(data, '\n'); t.mu.cut && end >= 0 {
		data = data[end+1:]
	}
	return strings.ToValidUTF8(string(data), "?")
}

// listen reads r to its end, keeps the tail and passes on each line.
func (t *tail) listen(r *os.File, line func(string)) {
	buf := make([]byte, lineBytes)
	held := 0 // bytes of a line that has not ended
	for {
		n, err := r.Read(buf[held:])
		t.add(buf[held : held+n])
		held = emitLines(buf, held+n, line)
		if err != nil {
			break
		}
	}
	emit(buf[:held], line)
}

// emitLines passes on the lines in buf[:n] and moves the rest to the front.
func emitLines(buf []byte, n int, line func(string)) (held int) {
	rest := buf[:n]
	for {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			break
		}
		emit(rest[:end], line)
		rest = rest[end+1:]
	}
	if len(rest) == len(buf) {
		emit(rest, line)
		return 0
	}
	return copy(buf, rest)
}

func emit(text []byte, line func(string)) {
	if text = bytes.TrimRight(text, "\r\n"); len(text) > 0 {
		line(strings.ToValidUTF8(string(text), "?"))
	}
}
