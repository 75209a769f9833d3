package mps

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestTail(t *testing.T) {
	var tl tail
	for range 3 * tailMax / 10 {
		if n, err := tl.Write([]byte("012345678\n")); n != 10 || err != nil {
			t.Fatal(n, err)
		}
	}
	tl.Write([]byte("\xffend\n"))
	if text := tl.text(); len(text) > tailMax || !strings.HasSuffix(text, "\n?end\n") {
		t.Errorf("%d bytes", len(text))
	}
}

func TestLastLines(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "\n\n": "", "a\n\n b \n": "a | b", "1\n2\n3\n4\n5\n6\n7\n8": "3 | 4 | 5 | 6 | 7 | 8",
	} {
		if got := lastLines(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// A process is taken for one of MPS only if all says so.
func TestServes(t *testing.T) {
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

func TestWatchedIsClosed(t *testing.T) {
	w, err := watchProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool)
	go func() { ended <- w.wait() }()
	w.close()
	if <-ended {
		t.Error("this process has ended")
	}
}

func TestRestarts(t *testing.T) {
	o := Options{Directory: "/d", RestartLimit: 4}.withDefaults()
	r := restarts{opts: &o}
	now := time.Unix(1e9, 0)
	next := func(ranFor time.Duration, want time.Duration, more bool) {
		t.Helper()
		if got, ok := r.next(now, ranFor); got != want || ok != more {
			t.Errorf("%v, %v, expected %v, %v", got, ok, want, more)
		}
	}
	next(0, 100*time.Millisecond, true)
	next(0, 200*time.Millisecond, true)
	next(o.HealthyAfter, 100*time.Millisecond, true)
	next(0, 200*time.Millisecond, true)
	next(0, 0, false)
	r.forgive()
	next(0, 100*time.Millisecond, true)
	for range 20 {
		now = now.Add(o.RestartWindow + 1)
		r.next(now, 0)
	}
	next(0, o.BackoffMax, true)
}

func TestPhaseString(t *testing.T) {
	for phase, want := range map[Phase]string{PhaseRunning: "running", PhaseStopped: "stopped", 9: "Phase(9)"} {
		if got := phase.String(); got != want {
			t.Errorf("%s, expected %s", got, want)
		}
	}
}
