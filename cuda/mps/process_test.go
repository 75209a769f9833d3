package mps

import (
	"os"
	"testing"
)

// A process is taken for one of MPS only if all says so.
func TestServes(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	pid, home := alien(t, o), &directory{path: o.Directory}
	if !serves(pid, home) {
		t.Error("the daemon is not recognised")
	}
	if serves(pid, &directory{path: o.pipe()}) || serves(os.Getpid(), home) || serves(pidMax, home) {
		t.Error("another is taken for it")
	}
	if user := userOf(pid); user != os.Geteuid() {
		t.Errorf("user %d", user)
	}
	for _, pid := range []int{os.Getpid(), pidMax} {
		if user := userOf(pid); user != -1 {
			t.Errorf("user %d of %d, which is not of MPS", user, pid)
		}
	}
}
