package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
)

// twoDevices returns two executors with one service, whose queries lie in one memory.
func twoDevices(t *testing.T) (one, other *fixture) {
	t.Helper()
	one = startReady(t, nil, 1)
	other = startReady(t, func(o *Options) { o.Services[0].Inputs = one.Arena(0) }, 1)
	t.Cleanup(func() { one.Close() }) // before the other sees whether processes are left
	return one, other
}

// Batches and rounds of two executors have nothing to do with each other, whatever their
// numbers are: when the worker of one is killed, what runs on the other ends as it would,
// and the query that was lost is run there, as it is.
func TestAReplicaIsKilled(t *testing.T) {
	one, other := twoDevices(t)
	gate := t.TempDir() + "/gate"
	lost, kept := one.whole(0, 1, "1 signal "+gate), one.whole(0, 1, "2 signal "+gate)
	one.send(lost)
	other.send(kept)
	for _, f := range []*fixture{one, other} {
		awaitEvent(f, WorkerOutput, nil) // it runs
	}
	state, err := one.State(0)
	if err != nil || syscall.Kill(state.PID, syscall.SIGKILL) != nil {
		t.Fatal(err)
	}
	if s := one.receive().Spans[0]; s.Status != models.SpanCrashed || !errors.Is(s.Err, ErrKilled) {
		t.Fatalf("on the killed worker: %+v", s)
	}
	if o := len(other.Outcomes()); o != 0 {
		t.Fatalf("the other executor has %d outcomes", o)
	}
	touch(t, gate)
	if s := other.receive().Spans[0]; s.Status != models.SpanDone || texts(s)[0] != "2 signal "+gate+"0123" {
		t.Errorf("on the other worker: %+v", s)
	}
	lost.Span.Batch = 2
	if s := other.do(lost); s.Status != models.SpanDone || texts(s)[0] != "1 signal "+gate+"0123" {
		t.Errorf("run again on the other: %+v", s)
	}
	if now, _ := other.State(0); now.Starts != 1 || now.Err != nil {
		t.Errorf("the other worker: %+v", now)
	}
}

// The memory is read by the others when a service is removed from one executor, and by
// its worker that comes later.
func TestAReplicaIsRemoved(t *testing.T) {
	one, other := twoDevices(t)
	query := one.whole(0, 1, "x")
	one.awaitRemoved(one.remove(0))
	if s := other.do(query); s.Status != models.SpanDone || texts(s)[0] != "x0123" {
		t.Errorf("on the one that has it: %+v", s)
	}
	if err := one.Add(fakeSpec(0, "")); err != nil {
		t.Fatal(err)
	}
	awaitEvent(one, WorkerReady, nil)
	if s := one.do(query); s.Status != models.SpanDone || texts(s)[0] != "x0123" {
		t.Errorf("on the one that has it again: %+v", s)
	}
}

// allowed returns the cores that the threads of a process may run on, each list once.
func allowed(t *testing.T, pid int) (lists []string) {
	t.Helper()
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, list, _ := strings.Cut(string(text), "Cpus_allowed_list:")
		list, _, _ = strings.Cut(list, "\n")
		if list = strings.TrimSpace(list); len(lists) == 0 || lists[0] != list {
			lists = append(lists, list)
		}
	}
	return lists
}

// All threads of a worker run on the cores that are set, those of one that comes after it
// too, and those of this process wherever they did.
func TestAffinity(t *testing.T) {
	var ours unix.CPUSet
	if err := unix.SchedGetaffinity(0, &ours); err != nil || ours.Count() < 2 {
		t.Skipf("this process has %d cores, %v: a worker cannot have fewer", ours.Count(), err)
	}
	last := 0
	for c := range coresKnown {
		if ours.IsSet(c) {
			last = c
		}
	}
	before := allowed(t, os.Getpid())
	f := start(t, func(o *Options) { o.Affinity = []int{last} }, "")
	for range 2 {
		pid := awaitEvent(f, WorkerReady, nil).PID
		if got := allowed(t, pid); len(got) != 1 || got[0] != fmt.Sprint(last) {
			t.Errorf("the worker may run on %v, want %d", got, last)
		}
		syscall.Kill(pid, syscall.SIGKILL)
	}
	if got := allowed(t, os.Getpid()); len(got) != 1 || got[0] != before[0] {
		t.Errorf("this process may run on %v, could on %v", got, before)
	}
}

func TestCoresThatAreNotThere(t *testing.T) {
	for _, core := range []int{-1, coresKnown - 1, coresKnown} {
		_, err := New(Options{Command: []string{"x"}, Affinity: []int{core}})
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), fmt.Sprintf("core %d for workers is not available", core)) {
			t.Errorf("core %d: %v", core, err)
		}
	}
}
