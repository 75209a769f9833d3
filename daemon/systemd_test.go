package daemon

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
)

func testNotifier(watchdog time.Duration) *notifier {
	c := config.Default()
	c.Worker.LoadTimeout, c.DrainTimeout = time.Minute, 30*time.Second
	c.Services = make([]config.Service, 2)
	return newNotifier(c, watchdog)
}

func TestNotifier(t *testing.T) {
	n := testNotifier(30 * time.Second)
	const loading, half = "STATUS=loading, services ready: 0 of 2", "STATUS=serving, services ready: 1 of 2"
	for _, c := range []struct {
		what string
		now  time.Duration
		s    standing
		want []string
	}{
		{"the scheduler has not begun", 0, standing{services: 2}, []string{loading}},
		{"it begins", 1 * time.Second, standing{services: 2, beat: 1 * time.Second},
			[]string{"EXTEND_TIMEOUT_USEC=20000000", "WATCHDOG=1"}},
		{"nothing new", 2 * time.Second, standing{services: 2, beat: 2 * time.Second}, nil},
		{"more time", 6 * time.Second, standing{services: 2, beat: 6 * time.Second}, []string{"EXTEND_TIMEOUT_USEC=20000000"}},
		{"the scheduler hangs", 20 * time.Second, standing{services: 2, beat: 6 * time.Second}, []string{"WATCHDOG=1"}},
		{"it still does", 40 * time.Second, standing{services: 2, beat: 6 * time.Second}, nil},
		{"it goes on", 41 * time.Second, standing{services: 2, beat: 41 * time.Second},
			[]string{"EXTEND_TIMEOUT_USEC=20000000", "WATCHDOG=1"}},
		{"one is ready", 42 * time.Second, standing{services: 2, ready: 1, beat: 42 * time.Second}, []string{half}},
		{"too long", 3 * time.Minute, standing{services: 2, ready: 1, beat: 3 * time.Minute}, []string{"WATCHDOG=1"}},
		{"the other is given up", 181 * time.Second, standing{services: 2, ready: 1, givenUp: []string{"b"}, beat: 181 * time.Second},
			[]string{"READY=1", half + "; failed permanently: b"}},
		{"a worker is lost", 200 * time.Second, standing{services: 2, givenUp: []string{"b"}, beat: 200 * time.Second},
			[]string{"WATCHDOG=1", "STATUS=loading, services ready: 0 of 2; failed permanently: b"}},
		{"stop", 201 * time.Second, standing{services: 2, ready: 2, beat: 201 * time.Second, stopping: true},
			[]string{"STOPPING=1", "EXTEND_TIMEOUT_USEC=46000000", "STATUS=stopping: answering the accepted queries"}},
		{"stopping", 215 * time.Second, standing{services: 2, ready: 0, beat: 215 * time.Second, stopping: true}, []string{"WATCHDOG=1"}},
	} {
		if diff := cmp.Diff(c.want, n.step(c.now, c.s)); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", c.what, diff)
		}
	}
}

// TestNotifierIsNeverReadyWithoutServices holds READY=1 back where nothing can
// be answered.
func TestNotifierIsNeverReadyWithoutServices(t *testing.T) {
	n := testNotifier(0)
	for now := range 10 {
		s := standing{services: 2, givenUp: []string{"a", "b"}, beat: time.Duration(now) * time.Second}
		for _, state := range n.step(s.beat, s) {
			if !strings.HasPrefix(state, "STATUS=") {
				t.Errorf("second %d: told %s", now, state)
			}
		}
	}
}

// TestWatchdogFollowsTheBeat draws how the scheduler lives: there is never a
// sign of life without one of its own, and while it has some the manager hears
// of it in time.
func TestWatchdogFollowsTheBeat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		watchdog := time.Duration(rapid.IntRange(4000, 60000).Draw(t, "watchdog")) * time.Millisecond
		n := testNotifier(watchdog)
		var beat, fed, last time.Duration
		for now := servingReport; now < 3*time.Minute; now += servingReport {
			if rapid.IntRange(0, 9).Draw(t, "stall") > 0 {
				beat = now.Truncate(time.Second)
			}
			states := n.step(now, standing{services: 2, ready: 2, beat: beat})
			if slices.Contains(states, "WATCHDOG=1") {
				if beat == fed {
					t.Fatalf("%v: a sign of life, and the scheduler has given none since %v", now, fed)
				}
				fed, last = beat, now
			} else if beat != fed && now-last > watchdog/2+servingReport {
				t.Fatalf("%v: the scheduler lives, and the manager of %v has heard nothing since %v", now, watchdog, last)
			}
		}
	})
}

// TestReport sees a daemon tell of itself, through all that it does.
func TestReport(t *testing.T) {
	r := startRig(t, rigOptions{services: 2})
	told := make(chan string, 100)
	stopping, stop := context.WithCancel(context.Background())
	ended, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	defer func() {
		end()
		<-done
	}()
	ready := make(chan []string, 2)
	go func() {
		defer close(done)
		r.Report(stopping, ended, Manager{
			Tell:     func(s string) error { told <- s; return errors.New("nobody listens") },
			Watchdog: time.Second,
			Ready:    func(without []string) { ready <- without },
		})
	}()
	wait := func(want string) {
		t.Helper()
		limit := time.After(time.Minute)
		for {
			select {
			case states := <-told:
				if slices.Contains(strings.Split(states, "\n"), want) {
					return
				}
			case <-limit:
				t.Fatalf("%s was not told", want)
			}
		}
	}
	wait("READY=1")
	if without := <-ready; len(without) != 0 {
		t.Errorf("ready without %v", without)
	}
	wait("WATCHDOG=1")
	stop()
	wait("STOPPING=1")
	if log := r.log.String(); !strings.Contains(log, "nobody listens") {
		t.Errorf("that telling failed is not in the log:\n%s", log)
	}
}

// TestStandingKnowsWhoIsGivenUp gives a service up and takes it back.
func TestStandingKnowsWhoIsGivenUp(t *testing.T) {
	r := startRig(t, rigOptions{services: 2})
	name := r.backend.Services()[1].Name
	r.workers.Tell(executor.Event{Kind: executor.WorkerFailed, Service: 1, Err: executor.ErrExited})
	r.sync()
	s := r.standing()
	if s.ready != 1 || s.loading() != 0 || !slices.Equal(s.givenUp, []string{name}) {
		t.Errorf("got %+v", s)
	}
}

func TestReloadingIsTold(t *testing.T) {
	var told []string
	m := Manager{Tell: func(s string) error { told = append(told, s); return nil }}
	now := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		return ts.Nano() / int64(time.Microsecond)
	}
	before := now()
	ended := m.Reloading()
	if len(told) != 1 {
		t.Fatalf("told %q", told)
	}
	parts := regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=(\d+)\nEXTEND_TIMEOUT_USEC=\d+$`).FindStringSubmatch(told[0])
	if parts == nil {
		t.Fatalf("told %q", told[0])
	}
	if at, err := strconv.ParseInt(parts[1], 10, 64); err != nil || at < before || at > now() {
		t.Errorf("the time %s is not between %d and %d", parts[1], before, now())
	}
	if err := ended(); err != nil || told[len(told)-1] != "READY=1" {
		t.Errorf("told %q, %v", told, err)
	}
}

func TestReloadingThatNobodyHears(t *testing.T) {
	deaf := errors.New("deaf")
	m := Manager{Tell: func(string) error { return deaf }}
	if err := m.Reloading()(); !errors.Is(err, deaf) {
		t.Errorf("got %v", err)
	}
}

// A daemon that ends as soon as it is told to stop tells that it stops.
func TestStoppingIsToldInAnyCase(t *testing.T) {
	for range 30 {
		b := newBackend(t, fakeworkers.Config(1, nil), nil, nil)
		d := b.daemon
		stopping, stop := context.WithCancel(t.Context())
		ended, end := context.WithCancel(t.Context())
		var told string
		d.Report(stopping, ended, Manager{Tell: func(state string) error {
			told += state + "\n"
			stop()
			end()
			return nil
		}})
		if !strings.Contains(told, "STOPPING=1") {
			t.Fatalf("told %q", told)
		}
	}
}
