package executor

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/segments/wire"
)

// A model that does not fit is not tried again, and one that found no memory a
// few times in a row; a worker that was ready in between starts the count over.
func TestNoRoom(t *testing.T) {
	policy := child.Policy{BackoffMin: 1, BackoffMax: 1, HealthyAfter: time.Hour, RestartLimit: 100, RestartWindow: time.Minute}
	short := fmt.Errorf("%w: %w", ErrLoad, wire.ErrDeviceMemory)
	for name, c := range map[string]struct {
		causes []error
		ready  time.Duration
		tries  int // until it is given up, 0 for never
	}{
		"does not fit":            {[]error{fmt.Errorf("%w: %w", ErrLoad, wire.ErrDeviceFull)}, 0, 1},
		"no memory":               {[]error{short, short, short, short, short}, 0, memoryTries + 1},
		"no memory while serving": {[]error{short, short, short, short, short}, 1, 0},
		"other losses between":    {[]error{short, short, short, ErrExited, short, short, short}, 0, 0},
		"device lost":             {[]error{wire.ErrDeviceLost, wire.ErrDeviceLost, wire.ErrDeviceLost, wire.ErrDeviceLost, wire.ErrDeviceLost}, 0, 0},
	} {
		r, given := restarts{Restarts: child.Restarts{Policy: policy}}, 0
		for i, cause := range c.causes {
			if _, err := r.next(time.Unix(1000, 0), 0, c.ready, cause); errors.Is(err, ErrNoRoom) && given == 0 {
				given = i + 1
			}
		}
		if given != c.tries {
			t.Errorf("%s: given up after %d tries, want %d", name, given, c.tries)
		}
	}
}

// An invalid model is not retried.
func TestModelIsNoGood(t *testing.T) {
	cause := fmt.Errorf("%w: %w", ErrLoad, wire.ErrModel)
	r := restarts{Restarts: child.Restarts{Policy: child.Policy{BackoffMin: 1, BackoffMax: 1, RestartLimit: 100, RestartWindow: time.Minute}}}
	if _, err := r.next(time.Unix(1000, 0), 0, 0, cause); !errors.Is(err, wire.ErrModel) {
		t.Errorf("got %v", err)
	}
}

// A service whose worker is lost while it loads, however seldom, is given up once all of its
// attempts have taken as long as loading may take. A worker that was ready starts the count over.
func TestLoadsThatAreLost(t *testing.T) {
	policy := child.Policy{BackoffMin: 1, BackoffMax: 1, HealthyAfter: time.Hour, RestartLimit: 30, RestartWindow: time.Minute}
	r := restarts{Restarts: child.Restarts{Policy: policy}, loadTimeout: 2 * time.Minute, retryMin: 1, retryMax: 1}
	now := time.Unix(1000, 0)
	lost := func(ready time.Duration) error {
		now = now.Add(25 * time.Second)
		_, err := r.next(now, 25*time.Second, ready, ErrExited)
		return err
	}
	for _, ready := range []time.Duration{0, 0, 0, 0, time.Second, 0, 0, 0, 0} {
		if err := lost(ready); err != nil {
			t.Fatalf("it is given up: %v", err)
		}
	}
	for range 3 {
		if err := lost(0); !errors.Is(err, ErrLoadTimeout) || !errors.Is(err, ErrExited) {
			t.Errorf("it is not given up: %v", err)
		}
	}
	r.forgive()
	if err := lost(0); err != nil {
		t.Errorf("after a person has asked: %v", err)
	}
}

// A worker that served for long ends the growth of the pauses, and so does a person.
func TestPauses(t *testing.T) {
	r := restarts{
		Restarts: child.Restarts{Policy: child.Policy{HealthyAfter: time.Minute, RestartLimit: 1, RestartWindow: time.Hour}},
		retryMin: 1, retryMax: 4,
	}
	for i, c := range []struct {
		ready time.Duration
		want  time.Duration
	}{{0, 0}, {0, 1}, {time.Second, 2}, {0, 4}, {0, 4}, {time.Minute, 1}, {0, 2}} {
		if got, err := r.next(time.Unix(1000, 0), 0, c.ready, ErrExited); got != c.want || (err == nil) != (i == 0) {
			t.Errorf("loss %d: %v, %v, want a pause of %v", i, got, err, c.want)
		}
	}
	r.forgive()
	if _, err := r.next(time.Unix(1000, 0), 0, 0, ErrExited); err != nil || r.pause != 0 {
		t.Errorf("after a person has asked: %v, %v", r.pause, err)
	}
}

// What is waited for without a limit is said: a driver may keep a process that
// was killed from ending.
func TestStuckWorkerIsSaid(t *testing.T) {
	p, err := child.Start(exec.Command("sleep", "60"), nil)
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	e := &Executor{opts: Options{Events: func(e Event) { said <- e.Line }}}
	w := &worker{service: &service{executor: e}, process: p}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.awaitEnd(time.Microsecond)
	}()
	if line := <-said; !strings.Contains(line, strconv.Itoa(p.PID())) {
		t.Errorf("%q", line)
	}
	p.Kill()
	<-ended
	w.awaitEnd(time.Hour) // it has ended
}
