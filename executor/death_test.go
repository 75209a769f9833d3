package executor

import (
	"bufio"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// awaitGone waits until the process with this number is dead.
func awaitGone(t testing.TB, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); alive(n); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			syscall.Kill(n, syscall.SIGKILL)
			t.Fatalf("process %d lives on", n)
		}
	}
}

// Workers are killed at random moments while rounds of two services run: every
// round has exactly one outcome, in which the other service lost nothing.
func TestKillLoop(t *testing.T) {
	const kills = 20
	f := startReady(t, func(o *Options) { o.RestartLimit = 10 * kills }, 2)
	random := rand.New(rand.NewPCG(1, 2))
	outcomes := make(map[uint64]int)
	batch, lost := models.BatchID(0), 0
	one, other := f.whole(0, 0, "0 sleep 200us"), f.whole(1, 0, "0 sleep 200us")
	round := func() {
		batch++
		one.Span.Batch, other.Span.Batch = batch, batch
		f.send(one, other)
	}
	take := func() {
		o := f.receive()
		outcomes[o.Round]++
		if o.Spans[1].Status != models.SpanDone {
			t.Fatalf("the other service: %+v", o.Spans[1])
		}
		if o.Spans[0].Status == models.SpanLost {
			lost++
		}
		texts(o.Spans[0])
		texts(o.Spans[1])
	}
	round()
	for range kills {
		for range random.IntN(20) {
			round()
			take()
		}
		pid := awaitPID(f)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		round()
		take()
		awaitEvent(f, WorkerLost, func(e Event) bool { return e.PID == pid })
	}
	take()
	if len(outcomes) != int(f.round) || lost == 0 {
		t.Errorf("%d outcomes of %d rounds, %d spans lost", len(outcomes), f.round, lost)
	}
	for r, n := range outcomes {
		if n != 1 {
			t.Errorf("round %d has %d outcomes", r, n)
		}
	}
	if state, _ := f.State(1); state.Starts != 1 {
		t.Errorf("the other service was started %d times", state.Starts)
	}
}

// awaitPID returns the process of service 0 once it is ready.
func awaitPID(f *fixture) int {
	f.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if state, _ := f.State(0); state.Phase == Ready {
			return state.PID
		}
	}
	f.t.Fatal("no worker")
	return 0
}

// Whatever kills the parent, and whatever the worker does then, it dies too.
func TestWorkersDieWithTheirParent(t *testing.T) {
	for name, text := range map[string]string{"idle": "", "hangs": "1 hang", "computes": "1 spin"} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), roleParent, "OVERLAPD_TEST_TEXT="+text)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			pid := strings.TrimSpace(line)
			if n, _ := strconv.Atoi(pid); err != nil || !alive(n) {
				t.Errorf("worker %q, %v", pid, err)
			}
			cmd.Process.Kill()
			cmd.Wait()
			awaitGone(t, pid)
		})
	}
}

// A worker leaves the decision to the daemon when all are asked to end.
func TestWorkersIgnoreSignals(t *testing.T) {
	f := startReady(t, nil, 1)
	pid := awaitPID(f)
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
	}
	if s := f.do(f.whole(0, 1, "a")); s.Status != models.SpanDone {
		t.Fatalf("%+v", s)
	} else {
		texts(s)
	}
	if group, err := syscall.Getpgid(pid); err != nil || group != pid {
		t.Errorf("worker %d is in group %d, %v", pid, group, err)
	}
}
