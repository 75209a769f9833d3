package load

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// lines is a writer that a progress line and a test share.
type lines struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.Write(b)
}

func TestProgressLine(t *testing.T) {
	s := serve(t, answerOK)
	var l lines
	res := mustRun(t, short(s, func(o *Options) {
		o.Connections, o.Progress, o.Duration = 1, &l, 3*progressInterval
	}))
	if got := l.mu.String(); !strings.Contains(got, "requests, 0 errors") {
		t.Errorf("progress %q of %d requests", got, res.Requests)
	}
}

func TestNoProgressLineInAFile(t *testing.T) {
	s := serve(t, answerOK)
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mustRun(t, short(s, func(o *Options) {
		o.Connections, o.Progress, o.Duration = 1, f, 2*progressInterval
	}))
	if info, err := f.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("%d bytes in a file that is no terminal, error %v", info.Size(), err)
	}
}
