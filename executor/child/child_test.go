package child

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const patience = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shell starts a script and returns what it writes, line by line.
func shell(t *testing.T, script string) (*Process, <-chan string) {
	t.Helper()
	said := make(chan string, 100)
	p, err := Start(exec.Command("sh", "-c", script), func(line string) { said <- line })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		<-p.Done()
	})
	return p, said
}

func awaitDone(t *testing.T, p *Process) {
	t.Helper()
	if !Within(p.Done(), patience) {
		t.Fatal("it does not end")
	}
}

func TestOutputAndStatus(t *testing.T) {
	p, said := shell(t, "echo a; echo b >&2; exit 3")
	awaitDone(t, p)
	if a, b := <-said, <-said; a != "a" || b != "b" || p.Tail() != "a\nb\n" {
		t.Errorf("lines %q and %q and tail %q, want a, b and both", a, b, p.Tail())
	}
	if p.Status() != "exit status 3" || p.Succeeded() {
		t.Error(p.Status())
	}
	p.Kill() // means nobody any more
	if q, _ := shell(t, "sleep 60"); q.Status() != "" || q.Succeeded() || Within(q.Done(), time.Microsecond) {
		t.Error("it has ended:", q.Status())
	}
}

func TestStartFails(t *testing.T) {
	if _, err := Start(exec.Command("/does/not/exist"), nil); err == nil {
		t.Error("it started")
	}
}

// The group is its own, and all of it ends with the process, however that ends.
func TestGroupEndsToo(t *testing.T) {
	for name, script := range map[string]string{"killed": "sleep 60 & echo $!; wait", "exits": "sleep 60 & echo $!"} {
		t.Run(name, func(t *testing.T) {
			p, said := shell(t, script)
			var grandchild int
			if _, err := fmt.Sscan(<-said, &grandchild); err != nil {
				t.Fatal(err)
			}
			if group, err := syscall.Getpgid(p.PID()); err == nil && group != p.PID() {
				t.Errorf("process %d is in group %d", p.PID(), group)
			}
			if name == "killed" {
				p.Kill()
			}
			awaitDone(t, p)
			for deadline := time.Now().Add(patience); runs(grandchild); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("process %d lives on", grandchild)
				}
			}
		})
	}
}

// runs reports whether a process runs; a zombie does not.
func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(state, "Z")
}

// What left the group and holds the pipe does not delay the end.
func TestPipeIsHeld(t *testing.T) {
	p, said := shell(t, "setsid sleep 60 & echo $!")
	var stray int
	if _, err := fmt.Sscan(<-said, &stray); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(stray, syscall.SIGKILL)
	if !Within(p.Done(), patience/2) {
		t.Error("it does not end")
	}
}

// A process that writes without end does not keep those busy who listen, and how
// much was left out is said.
func TestFlood(t *testing.T) {
	begin := time.Now()
	var all []string
	p, err := Start(exec.Command("sh", "-c", "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done"), func(line string) { all = append(all, line) })
	if err != nil {
		t.Fatal(err)
	}
	awaitDone(t, p)
	if most := 2*lineBurst + 2*int(time.Since(begin)/lineEvery); len(all) > most {
		t.Errorf("%d lines", len(all))
	}
	if !slices.ContainsFunc(all, func(line string) bool { return strings.Contains(line, "lines were dropped") }) {
		t.Error("nobody says that some are missing")
	}
	if !strings.HasSuffix(p.Tail(), "\n19999\n") {
		t.Errorf("the end is not kept: %q", p.Tail())
	}
}
