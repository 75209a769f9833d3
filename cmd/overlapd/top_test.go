package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/status"
)

// viewOf is a view of so many services that have run rounds of 3 ms each.
func viewOf(services, rounds int) *view {
	v := &view{}
	v.now.Status.Ready, v.now.Status.Overview.Device = true, "a device"
	for i := range services {
		name := fmt.Sprintf("service-%d", i)
		v.now.Status.Overview.Services = append(v.now.Status.Overview.Services, status.Service{Name: name, Ready: true, Finished: 20})
		lately := timeline.Service{Name: name, Target: 50 * time.Millisecond}
		lately.Ended, lately.P50, lately.P99, lately.Missed = 10, 9*time.Millisecond, time.Duration(30+15*i)*time.Millisecond, i
		v.now.Timeline.Services = append(v.now.Timeline.Services, lately)
	}
	const took = 3 * time.Millisecond
	for i := range rounds {
		start := time.Duration(i) * took
		v.now.Timeline.Rounds = append(v.now.Timeline.Rounds, timeline.Round{
			Number: uint64(i + 1), Start: start, End: start + took, Took: took, Bound: took + time.Duration(i%2*2-1),
			Spans: []timeline.Span{{Service: i % services, Start: 0, End: 4, Of: 4, Deadline: start + took + time.Millisecond}},
		})
	}
	v.before = v.now
	v.before.Timeline.Now -= time.Second
	return v
}

// Whatever there is to show fits in the terminal.
func TestViewFits(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {40, 10}, {200, 60}, {25, 9}, {40, 20}, {30, 6}, {1, 1}} {
		for _, services := range []int{1, 2, 8, 64} {
			v := viewOf(services, 300)
			v.now.Status.Overview.Device = strings.Repeat("long ", 60)
			lines := strings.Split(strings.TrimSuffix(v.render(size[0], size[1], false), "\n"), "\n")
			if len(lines) > max(1, size[1]-1) {
				t.Errorf("%d services take %d lines of %d", services, len(lines), size[1])
			}
			for _, l := range lines {
				if n := len([]rune(l)); n > max(size[0], leastNames+2) {
					t.Errorf("%d of %d columns: %q", n, size[0], l)
				}
			}
		}
	}
}

func TestView(t *testing.T) {
	text := viewOf(2, 4).render(80, 24, false)
	for _, want := range []string{
		"overlapd on a device   q quits, p holds\n",
		"service-0            50ms       9ms      30ms    0.0 %       0      0         0\n",
		"each column 1ms: # runs, v deadline, ! longer than bound\n",
		"!!!===!!!===\n", "###.v.###.v.\n", "...###.v.###\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it has no %q:\n%s", want, text)
		}
	}
	if text := viewOf(2, 0).render(80, 24, false); !strings.Contains(text, "no group has run yet") {
		t.Errorf("of an idle daemon:\n%s", text)
	}
	if text := viewOf(3, 1).render(80, 24, true); !strings.Contains(text, "\x1b[31mservice-2") || strings.Contains(text, "\x1b[31mservice-0") {
		t.Errorf("a p99 over its target is not red:\n%s", text)
	}
	v := viewOf(1, 1)
	v.lost, v.now.Status.Overview.Emulated = errors.New("refused\x1b[2J"), true
	if text := v.render(200, 24, false); !strings.Contains(text, "nothing is computed   CONNECTION LOST: refused?[2J") {
		t.Errorf("a lost connection:\n%s", text)
	}
	v.lost, v.held = nil, true
	if text := v.render(200, 24, false); !strings.Contains(text, "HELD") {
		t.Errorf("held:\n%s", text)
	}
	v.held, v.now.Status.Ready, v.now.Status.Overview.Services[0].Ready = false, false, false
	if text := v.render(200, 24, false); !strings.Contains(text, "not ready: service-0") {
		t.Errorf("while loading:\n%s", text)
	}
}

// What matters most stays in a narrow terminal: what is late, and a connection
// that is lost; where there is room, names are whole.
func TestNarrowViews(t *testing.T) {
	v := viewOf(2, 4)
	for width, want := range map[int]string{
		80: "SERVICE            TARGET       P50       P99   MISSED   QUEUE DONE/S      LOST\n",
		70: "SERVICE     TARGET       P50       P99   MISSED   QUEUE DONE/S\n",
		40: "SERVICE         P99   MISSED   QUEUE\n",
		20: "SERV~       P99\n",
	} {
		if text := v.render(width, 24, false); !strings.Contains(text, "\n"+want) {
			t.Errorf("%d columns have no %q:\n%s", width, want, text)
		}
	}
	v.now.Status.Overview.Device, v.lost = strings.Repeat("device ", 20), errors.New("refused")
	if text := v.render(80, 24, false); !strings.Contains(text, "~   CONNECTION LOST: refused\n") {
		t.Errorf("a lost connection is cut off:\n%s", text)
	}
	if text := v.render(20, 24, false); !strings.HasPrefix(text, "CONNECTION LOST: re~\n") {
		t.Errorf("a lost connection is cut off:\n%s", text)
	}
	v.lost = nil
	if text := v.render(80, 0, false); strings.Contains(text, "quits") {
		t.Errorf("keys are told of where there are none:\n%s", text)
	}
	v.now.Timeline.Services[0].Name = "service-of-28-characters-long"
	for width, want := range map[int]string{80: "service-of-28-c~ ", 100: "service-of-28-characters-long ", 70: "service-of-28-ch~ "} {
		if text := v.render(width, 24, false); strings.Count(text, "\n"+want) != 2 {
			t.Errorf("%d columns: want %q\n%s", width, want, text)
		}
	}
}

func TestColumnTime(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: 10 * time.Microsecond, time.Millisecond: 500 * time.Microsecond, 3 * time.Millisecond: time.Millisecond,
		5 * time.Millisecond: 2 * time.Millisecond, 20 * time.Millisecond: 10 * time.Millisecond, 3 * time.Second: time.Second,
	} {
		if got := columnTime([]timeline.Round{{End: took}}); got != want {
			t.Errorf("rounds of %v: %v, want %v", took, got, want)
		}
	}
}

// Keys quit, hold, or do nothing.
func TestKeys(t *testing.T) {
	for keys, want := range map[string][2]bool{"q": {true, false}, "xQ": {true, false}, "\x03": {true, false}, "p": {false, true}, " ": {false, true}, "xyz": {false, false}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString(keys); err != nil {
			t.Fatal(err)
		}
		var v view
		quit := v.keys(context.Background(), int(r.Fd()), 10*time.Millisecond)
		if quit != want[0] || v.held != want[1] {
			t.Errorf("%q: quit %t, held %t", keys, quit, v.held)
		}
		w.Close()
		if !v.keys(context.Background(), int(r.Fd()), time.Minute) {
			t.Errorf("%q: a terminal that is gone is waited for", keys)
		}
		r.Close()
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if !new(view).keys(over, 0, time.Minute) {
		t.Error("a signal is not heard")
	}
}

// terminal opens a pair of which the second is a terminal.
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal can be made here: %v", err)
	}
	t.Cleanup(func() { ours.Close() })
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal can be opened here: %v", err)
	}
	t.Cleanup(func() { theirs.Close() })
	if err := unix.IoctlSetWinsize(int(theirs.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// standIn is a daemon that has run nothing.
func standIn(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers := map[string]string{
			"/v2/health/live": "", "/v2/health/ready": "", "/v2/models/stats": `{"model_stats":[]}`,
			"/overlapd/status": `{"device":"stand-in"}`, "/overlapd/timeline": `{"services":[],"rounds":[]}`,
		}
		_, _ = io.WriteString(w, answers[r.URL.Path])
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// The view takes another screen, and leaves the terminal as it was.
func TestWatchRestoresTheTerminal(t *testing.T) {
	ours, theirs := terminal(t)
	before, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	screen, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	var drawn bytes.Buffer
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&drawn, screen) })
	stdout := os.Stdout
	os.Stdout = out
	var v view
	at := target{base: standIn(t)}
	if err := at.open(); err != nil {
		t.Fatal(err)
	}
	err = v.ask(&at)
	if err == nil {
		if _, err = ours.WriteString("q"); err == nil {
			err = watch(context.Background(), &v, &at, int(theirs.Fd()), int(theirs.Fd()))
		}
	}
	os.Stdout = stdout
	out.Close()
	reading.Wait()
	if err != nil {
		t.Fatal(err)
	}
	after, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("%v: the terminal is %+v, was %+v", err, after, before)
	}
	text := drawn.String()
	if !strings.HasPrefix(text, enterScreen) || !strings.HasSuffix(text, leaveScreen) || !strings.Contains(text, "overlapd on stand-in") {
		t.Errorf("it draws %q", text)
	}
}
