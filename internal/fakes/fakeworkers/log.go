package fakeworkers

import (
	"bytes"
	"sync"
)

// log is the log of a daemon or loop, which the test reads while they write.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// NewLog returns an empty log.
func NewLog() *log { return new(log) }

// Write implements io.Writer.
func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns what was written until now.
func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
