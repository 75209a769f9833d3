package watching

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/status"
)

var updateTop = flag.Bool("update-top", false, "rewrite the golden frames of top")

// viewOf is a view of so many services that have run rounds of 3 ms each, and of which
// the last is given up and the one before it loads. Every service has lost queries.
func viewOf(services, rounds int) *view {
	v := new(view)
	var s seen
	o := &s.Status.Overview
	o.Device, o.Policy, o.UpSeconds, o.BusySeconds, o.Rounds = "a device", "overlap", 61, 3, 100
	o.Gain.OverlapNow, o.Gain.MergeNow = 0.25, 0.5
	o.Load = status.Load{DevicesDemanded: 0.75, Devices: make([]status.DeviceLoad, 2), Services: map[string]status.ServiceLoad{}}
	for i := range services {
		name := fmt.Sprintf("service-%d", i)
		o.Services = append(o.Services, status.Service{Name: name, Ready: true, Finished: 20, ResidentBytes: int64(i) * 300 << 20, Queued: i, Late: uint64(i), Dropped: map[string]uint64{"cannot_finish": uint64(2 * i)}})
		o.Load.Services[name] = status.ServiceLoad{Headroom: 0.4 - float64(i)/10}
		recent := timeline.Service{Name: name, Target: 50 * time.Millisecond}
		recent.Ended, recent.P50, recent.P99, recent.Missed = 10, 9*time.Millisecond, time.Duration(30+15*i)*time.Millisecond, i
		s.Timeline.Services = append(s.Timeline.Services, recent)
	}
	if services > 2 {
		o.Services[services-1].Ready, o.Services[services-1].Fault = false, "its worker was lost too often"
		o.Services[services-2].Ready, o.Loading = false, []status.Loading{{Service: o.Services[services-2].Name, Done: 41, Total: 164}}
	}
	if services > 8 {
		o.Services[4].Overrun = true
	}
	const took = 3 * time.Millisecond
	for i := range rounds {
		start := time.Duration(i) * took
		s.Timeline.Rounds = append(s.Timeline.Rounds, timeline.Round{
			Number: uint64(i + 1), Start: start, End: start + took, Took: took, Bound: took + time.Duration(i%2*2-1),
			Spans: []timeline.Span{{Service: i % services, Start: 0, End: 4, Of: 4, Deadline: start + took + time.Millisecond}},
		})
	}
	s.Status.History = timeline.History{
		Step: 5 * time.Second, Overlap: []time.Duration{0, time.Second, -time.Second, 0}, Merge: []time.Duration{0, time.Second, 0, 3 * time.Second},
		InTime: []uint64{0, 9, 9, 9}, Lost: map[string][]uint64{"late": {0, 1, 10, 4}},
	}
	h := &s.Status.History
	h.Services = slices.Grow(h.Services, services)[:services]
	for i := range h.Services {
		h.Services[i].Name, h.Services[i].InTime = fmt.Sprintf("service-%d", i), []uint64{0, 1, uint64(i), 8}
	}
	s.Timeline.Epoch, s.Timeline.Now = time.Unix(1, 0), time.Second
	v.take(s)
	s.Timeline.Now += time.Second
	o = &s.Status.Overview
	o.Services = append([]status.Service(nil), o.Services...)
	for i := range o.Services {
		o.Services[i].Finished += uint64(7 * i)
	}
	o.Rounds, o.BusySeconds = 130, 3.5
	v.take(s)
	return v
}

func (v *view) resize(width, height int) *view {
	v.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return v
}

func (v *view) hit(keys ...string) *view {
	for _, k := range keys {
		press := tea.KeyPressMsg{Code: []rune(k)[0], Text: k}
		switch k {
		case "down":
			press = tea.KeyPressMsg{Code: tea.KeyDown}
		case "up":
			press = tea.KeyPressMsg{Code: tea.KeyUp}
		}
		v.Update(press)
	}
	return v
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// frame is what the terminal shows, without colours.
func (v *view) frame() string { return escapes.ReplaceAllString(v.View().Content, "") }

// Golden frames: sizes, sorting, help, a lost connection, a view that is held.
func TestFrames(t *testing.T) {
	lost := viewOf(2, 4).resize(80, 24)
	lost.Update(answer{err: errors.New("refused\x1b[2J")})
	for name, v := range map[string]*view{
		"wide":     viewOf(4, 300).resize(140, 24),
		"usual":    viewOf(4, 300).resize(80, 24),
		"narrow":   viewOf(4, 300).resize(40, 10),
		"sorted":   viewOf(4, 300).resize(110, 24).hit("s", "s", "s", "s"),
		"reversed": viewOf(4, 300).resize(110, 24).hit("r"),
		"scrolled": viewOf(12, 300).resize(80, 16).hit("down", "down", "down", "up"),
		"help":     viewOf(2, 4).resize(80, 30).hit("?"),
		"idle":     viewOf(2, 0).resize(80, 12),
		"held":     viewOf(2, 4).resize(80, 12).hit("p"),
		"lost":     lost,
	} {
		path := filepath.Join("testdata", "top", name+".txt")
		got := v.frame() + "\n"
		if *updateTop {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: -update-top accepts:\n%s", name, diff)
		}
	}
}

// Whatever there is to show fits in the terminal, the keys last.
func TestViewFits(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {40, 10}, {200, 60}, {25, 9}, {40, 20}, {30, 6}, {1, 1}} {
		for _, services := range []int{1, 2, 8, 64} {
			v := viewOf(services, 300).resize(size[0], size[1])
			v.now.Status.Overview.Device = strings.Repeat("long ", 60)
			lines := strings.Split(v.frame(), "\n")
			if len(lines) > size[1] {
				t.Errorf("%d services take %d lines of %d", services, len(lines), size[1])
			}
			for _, l := range lines {
				if n := lipgloss.Width(l); n > size[0] {
					t.Errorf("%d of %d columns: %q", n, size[0], l)
				}
			}
			if last := lines[len(lines)-1]; size[0] >= 25 && !strings.HasPrefix(last, "? explain") {
				t.Errorf("%v: the last line is %q", size, last)
			}
		}
	}
}

// A p99 over its target is red, and where there is no terminal nothing has a colour.
func TestColours(t *testing.T) {
	v := viewOf(3, 1).resize(80, 24)
	if text := v.render(); !strings.Contains(text, "\x1b[31mservice-2") || strings.Contains(text, "\x1b[31mservice-0") {
		t.Errorf("drew %q", text)
	}
	if text := v.resize(80, 0).render(); strings.Contains(text, "\x1b") || strings.Contains(text, "explain") {
		t.Errorf("drew %q", text)
	}
}

// Keys quit, hold, sort and explain; a view that is held asks nobody.
func TestKeys(t *testing.T) {
	asked := 0
	v := viewOf(2, 4).resize(80, 24)
	v.ask = func() (seen, error) { asked++; return v.now, nil }
	ask := func() {
		if _, then := v.Update(due{}); then != nil {
			if a, ok := then().(answer); ok {
				v.Update(a)
			}
		}
	}
	for _, quit := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: 'c', Mod: tea.ModCtrl}} {
		if _, then := v.Update(quit); then == nil || then() != tea.Quit() {
			t.Errorf("%s does not quit", quit)
		}
	}
	if ask(); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	v.hit("p")
	if ask(); asked != 1 || !v.held {
		t.Error("it is held and asks")
	}
	v.hit("p", "x")
	if ask(); asked != 2 || v.held || v.help {
		t.Error("it does not go on")
	}
	if v.hit("?"); !v.help {
		t.Error("there is no help")
	}
	if v.hit("?"); v.help {
		t.Error("the help stays")
	}
	for range serviceColumns {
		v.hit("s")
	}
	if v.sort != 0 {
		t.Error("after the last column comes", v.sort)
	}
	if v.hit("down", "down", "down", "down").services(); v.first != 1 {
		t.Error("of two services are scrolled past", v.first)
	}
}

// A daemon that was started again is another one: there are no rates yet.
func TestRestartedDaemon(t *testing.T) {
	v := viewOf(1, 1).resize(80, 24)
	again := v.now
	again.Timeline.Epoch, again.Timeline.Now = again.Timeline.Epoch.Add(time.Minute), 0
	v.Update(answer{seen: again})
	if !strings.Contains(v.frame(), "rounds/s -  busy -") {
		t.Error(v.frame())
	}
}

func TestSparkline(t *testing.T) {
	for want, values := range map[string][]float64{"": nil, "  ": {0, 0}, " ▁▄█": {-1, 0.1, 4, 8}} {
		if got := sparkline(values, 60); got != want {
			t.Errorf("%v: %q, want %q", values, got, want)
		}
	}
	for most, want := range map[int]string{1: "█", 2: "▄█", 3: "▃▆█", 7: "▂▃▄▆▇█"} { // of 1 and 2, 3 and 4, 5 and 6
		if got := sparkline([]float64{1, 2, 3, 4, 5, 6}, most); got != want {
			t.Errorf("%d: %s, want %s", most, got, want)
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
