package executor

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// What is waited for without a limit is told: a driver may keep a process that
// was killed from ending.
func TestAwaitEnd(t *testing.T) {
	p := &process{
		cmd:    &exec.Cmd{Process: &os.Process{Pid: 4711}},
		exited: make(chan struct{}), heard: make(chan struct{}),
	}
	close(p.heard)
	told := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.awaitEnd(time.Microsecond, func(line string) { told <- line })
	}()
	if line := <-told; !strings.Contains(line, "4711") {
		t.Errorf("%q", line)
	}
	close(p.exited)
	<-ended
	p.awaitEnd(time.Hour, func(string) { t.Error("it has ended") })
}
