package daemon

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/models"
)

// golden compares a value with the JSON in a file.
func golden(t *testing.T, path string, value any) {
	t.Helper()
	got, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
}

// The names of an overview, and what they say of a daemon that has run one
// group, are relied on by others.
func TestOverview(t *testing.T) {
	r, first := groupRig(t)
	calls := r.group(first)
	r.workers.End(models.SpanDone)
	isServed(t, r.backend, calls...)
	o, ok := r.backend.FullStatus()
	if !ok || o.UpSeconds <= 0 || o.Gain.OverlapNow <= 0 {
		t.Fatalf("%t, up for %v s, gains %v", ok, o.UpSeconds, o.Gain.OverlapNow)
	}
	shown := *o
	shown.UpSeconds, shown.Gain.OverlapNow = 1, 0.25
	if l := &shown.Load; len(l.Devices) != 1 || len(l.Services) != 2 {
		t.Errorf("load %+v", l)
	}
	shown.Load = status.Load{ // which depends on when it was published
		DevicesDemanded: 0.5, Idle: 0.5, WindowSeconds: 60, AgeSeconds: 0.5, Devices: []status.DeviceLoad{{BusySeconds: 30, Idle: 0.5, IdleBeforeRoundMS: 2}},
		Services: map[string]status.ServiceLoad{"s0": {Headroom: 0.4, DeviceSeconds: 30}},
	}
	golden(t, "testdata/overview.json", shown)
}

func TestOverviewWhileMeasuring(t *testing.T) {
	r := startRig(t, rigOptions{services: 2})
	r.workers.AwaitRound()
	p := r.predictor()
	if p.Phase != "measuring" || p.Measuring == nil || p.Measuring.Total != 20 || p.Measuring.Done != 0 || p.File != nil {
		t.Errorf("%+v, %+v", p, p.Measuring)
	}
}

// Lists and tables of an overview are never null, whatever the daemon has done.
func TestOverviewOfAnIdleDaemon(t *testing.T) {
	b, _ := startLoop(t, 1, nil)
	o, ok := b.FullStatus()
	text, err := json.Marshal(o)
	if !ok || err != nil || bytes.Contains(text, []byte("null")) {
		t.Errorf("%t, %v: %s", ok, err, text)
	}
}

// Who asks a loop that is stalled, or has ended, is told so after a while.
func TestOverviewOfAStalledLoop(t *testing.T) {
	b, _ := startLoop(t, 1, nil)
	hold, held := make(chan struct{}), make(chan struct{})
	go b.Ask(func() { close(held); <-hold })
	<-held
	asked := make(chan bool)
	go func() {
		_, ok := b.FullStatus()
		asked <- ok
	}()
	eventually(t, "the question", func() bool { n, _ := inboxOf(b); return n == 1 })
	_, inboxLimit := inboxOf(b)
	for range inboxLimit { // nor can it be asked
		b.Services()[0].Backend.Cancel(new(query.Call))
	}
	if _, ok := b.FullStatus(); ok {
		t.Error("a stalled loop takes questions")
	}
	if l := b.Timeline().Load(b.Live()); len(l.Services) != 1 || l.DevicesDemanded < 1 {
		t.Errorf("its load is %+v", l)
	}
	if <-asked {
		t.Error("a stalled loop answers")
	}
	close(hold)
	b.Close()
	begin := time.Now()
	if _, ok := b.FullStatus(); ok || time.Since(begin) >= 2*time.Second {
		t.Error("a loop that has ended answers, or keeps one waiting")
	}
}
