package daemon

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
)

// fakeReports makes a report of each status that is pushed.
type fakeReports struct {
	loadReports
	t    *testing.T
	next status.Status
}

func newFakeReports(t *testing.T) *fakeReports {
	f := &fakeReports{t: t, loadReports: loadReports{devices: 2, epoch: time.Now().Add(-time.Hour)}}
	f.loadReports.status = func() *status.Status { s := f.next; return &s }
	return f
}

// wants has a report made, and fails unless it says so of a service.
func (f *fakeReports) wants(service, want string) {
	f.t.Helper()
	f.due.Store(0)
	if got := f.text(service, query.LoadText); got != want {
		f.t.Errorf("%q: %s\nwant %s", service, got, want)
	}
	if got := f.text(service, query.LoadText); got != want {
		f.t.Errorf("%q, once more: %s", service, got)
	}
}

// A report has what was counted recently, and what a query would take now.
func TestLoadReports(t *testing.T) {
	f := newFakeReports(t)
	f.wants("a", "") // nothing is known
	f.next = status.Status{At: time.Second, Services: []status.Service{
		{Name: "a", Ready: true, TargetShare: 0.25}, {Name: "b", BestEffort: true, Ready: true}, {Name: "c/x", Ready: true, TargetShare: 7}, {Name: "c/y", Ready: true, TargetShare: 0.5},
		{Name: "d", TargetShare: 0.1},
	}}
	f.wants("a", "TEXT cpu_utilization:0.0000,rps_fractional:0.0000,eps:0.0000,named_metrics.a:0.2500")
	f.next = status.Status{At: 2 * time.Second, BusySeconds: 0.5, Services: []status.Service{
		{Name: "a", Ready: true, TargetShare: 1.5, Finished: 100, Late: 3, Refused: map[string]uint64{"queue_full": 4}, Dropped: map[string]uint64{"deadline": 2, "cannot_finish": 1}, Cancelled: 50},
		{Name: "b", Ready: true, BestEffort: true, Finished: 10},
		{Name: "c/x", Ready: true, TargetShare: 7, Finished: 20}, {Name: "c/y", Ready: true, TargetShare: 0.5, Failed: map[string]uint64{"worker_lost": 5}},
		{Name: "d", TargetShare: 0.1},
	}}
	f.wants("a", "TEXT cpu_utilization:0.4688,rps_fractional:107.0000,eps:10.0000,named_metrics.a:0.8750")
	f.wants("b", "TEXT cpu_utilization:0.5208,rps_fractional:10.0000,eps:0.0000")
	f.wants("c", "TEXT cpu_utilization:0.5469,rps_fractional:25.0000,eps:5.0000,named_metrics.c:0.5000")
	f.wants("d", "TEXT cpu_utilization:0.5625,rps_fractional:0.0000,eps:0.0000,named_metrics.d:10.0000")
	f.wants("", "TEXT cpu_utilization:0.5729,rps_fractional:142.0000,eps:15.0000,named_metrics.a:1.2917,named_metrics.c:0.5000,named_metrics.d:10.0000")

	// What is long ago does not count any more.
	for range reportSamples {
		f.next.At += time.Second
		f.due.Store(0)
		f.text("", query.LoadText)
	}
	f.wants("c", "TEXT cpu_utilization:0.0000,rps_fractional:0.0000,eps:0.0000,named_metrics.c:0.5000")

	// A daemon that is to be stopped has no room, and one that schedules nothing.
	f.next.Draining = true
	f.wants("c", "TEXT cpu_utilization:10.0000,rps_fractional:0.0000,eps:0.0000,named_metrics.c:10.0000")
	f.next.Draining, f.next.Age = false, 2*reportStalled
	f.wants("c", "TEXT cpu_utilization:10.0000,rps_fractional:0.0000,eps:0.0000,named_metrics.c:10.0000")
}

// The first report after a pause says what it would have said had somebody asked all along.
func TestFirstReportAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		report := func(asking bool) string {
			r := loadReports{devices: 1, epoch: time.Now(), status: func() *status.Status {
				up := time.Since(began)
				n := uint64(400 * up.Seconds())
				return &status.Status{At: up, BusySeconds: up.Seconds() / 2, Services: []status.Service{{Name: "a", Ready: true, TargetShare: 0.5, Finished: n, Late: n / 10}}}
			}}
			ctx, end := context.WithCancel(t.Context())
			defer end()
			go r.keep(ctx)
			for range int(10 * time.Minute / reportEvery) {
				if asking {
					r.text("a", query.LoadText)
				}
				time.Sleep(reportEvery)
			}
			return r.text("a", query.LoadText)
		}
		const want = "TEXT cpu_utilization:0.7500,rps_fractional:400.0000,eps:40.0000,named_metrics.a:0.5000"
		for _, asking := range []bool{true, false} {
			if got := report(asking); got != want {
				t.Errorf("asked all along %t: %s", asking, got)
			}
		}
	})
}

// The fraction of its target that a query would take grows with the queued work, also that
// of other services, and falls again.
func TestTargetShareFollowsWhatWaits(t *testing.T) {
	r := startRig(t, rigOptions{services: 2, dir: sharedState(t)})
	r.await("serving")
	shares := func() (list []float64) {
		t.Helper()
		s, ok := r.backend.FullStatus()
		if !ok {
			t.Fatal("there is no status")
		}
		for i := range s.Services {
			list = append(list, s.Services[i].TargetShare)
		}
		return list
	}
	idle := shares()
	// 4 operators of 100 µs, and twice that, of a minute.
	if solo := 4 * 100e-6 / 60; !near(idle[0], solo) || !near(idle[1], 2*solo) {
		t.Fatalf("idle: %v", idle)
	}
	calls := []*query.Call{mustSubmit(t, r.backend, 0)}
	r.workers.AwaitRound()
	for range 3 {
		calls = append(calls, mustSubmit(t, r.backend, 1))
	}
	r.sync()
	if busy := shares(); !(busy[0] > 3*idle[0] && busy[1] > 1.5*idle[1]) {
		t.Errorf("idle %v, with queries that wait %v", idle, busy)
	}
	r.workers.RunsOn(&fakeworkers.Calm)
	for _, call := range calls {
		isServed(t, r.backend, call)
	}
	if after := shares(); !near(after[0], idle[0]) || !near(after[1], idle[1]) {
		t.Errorf("idle %v, and later %v", idle, after)
	}
}

func near(a, b float64) bool { return a > 0.9*b && a < 1.1*b }

// sharedState returns a state folder with the predictor of another daemon.
func sharedState(t *testing.T) (dir string) {
	t.Helper()
	path, dir := exported(t), t.TempDir()
	s := openTestState(t, dir)
	defer closeState(t, s)
	if _, err := s.ImportPredictor(path, nil, Options{}); err != nil {
		t.Fatal(err)
	}
	return dir
}
