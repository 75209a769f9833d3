package executor

import (
	"bytes"
	"os"
	"strconv"
)

const (
	// oomHandicap is how much sooner than the daemon a worker is killed where
	// memory runs out, in thousandths of all memory there is. A worker that is
	// killed is replaced; with the daemon all services would end.
	oomHandicap = 500

	// oomMost is the most that the kernel takes.
	oomMost = 1000
)

// offer has the kernel kill a process before us where memory runs out. Raising
// that of one's own processes needs no right; where it cannot be, as in some
// containers, the kernel chooses as it likes.
func offer(pid int) {
	ours, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return
	}
	score, err := strconv.Atoi(string(bytes.TrimSpace(ours)))
	if err != nil {
		return
	}
	theirs := strconv.Itoa(min(score+oomHandicap, oomMost))
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(theirs), 0)
}
