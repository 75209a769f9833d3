package executor

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/overlapd/overlapd/models"
)

// oomScore returns how soon a process is killed where memory runs out.
func oomScore(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		t.Skip("this kernel does not say: ", err)
	}
	score, err := strconv.Atoi(string(bytes.TrimSpace(b)))
	if err != nil {
		t.Fatal(err)
	}
	return score
}

// Where memory runs out, a worker dies and not the daemon.
func TestWorkersDieFirst(t *testing.T) {
	f := startReady(t, nil, 2)
	ours := oomScore(t, os.Getpid())
	for id := range 2 {
		state, err := f.State(models.ServiceID(id))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := oomScore(t, state.PID), min(ours+oomHandicap, oomMost); got != want {
			t.Errorf("worker %d: %d, want %d; the daemon has %d", id, got, want, ours)
		}
	}
}
