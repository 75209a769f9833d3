package journal

import (
	"errors"
	"reflect"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// reload has a service of the same name take the place of each, as a daemon
// does it, while queries come.
func reload(t *testing.T, l *load, services []models.Service) (after []models.Service) {
	t.Helper()
	for i, m := range services {
		m.ID, m.QoSTarget = models.ServiceID(len(services)+i), 2*m.QoSTarget
		for _, e := range []overlap.Event{{Kind: overlap.Add, Definition: m}, {Kind: overlap.Up, Service: m.ID}} {
			if err := l.s.Step(l.now, &e); err != nil {
				t.Fatal(err)
			}
		}
		l.serve[i] = m.ID
		after = append(after, m)
	}
	for id := range services {
		finish(t, l, models.ServiceID(id))
	}
	return after
}

// finish runs rounds until a service has finished what it has, and removes it.
func finish(t *testing.T, l *load, id models.ServiceID) {
	t.Helper()
	for range 10_000 {
		err := l.s.Step(l.now, &overlap.Event{Kind: overlap.Remove, Service: id})
		if err == nil {
			return
		}
		if !errors.Is(err, overlap.ErrServiceBusy) {
			t.Fatal(err)
		}
		l.round(t)
	}
	t.Fatalf("service %d does not come to its end", id)
}

// A log across a reload is replayed, and files that begin after it describe the
// services of then.
func TestReplayAcrossAReload(t *testing.T) {
	o := quick()
	o.MaxFileBytes, o.MaxFiles = 1<<16, 100
	l, w, dir := newLoad(t, o, "overlap")
	round := func() {
		l.round(t)
		w.keepUp()
	}
	for range 100 {
		round()
	}
	after := reload(t, l, loadConfig("overlap").Services)
	for range 300 {
		round()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	logs := replayAll(t, dir)
	if len(logs) < 2 {
		t.Fatalf("%d files", len(logs))
	}
	got := logs[0].State.Definitions()
	gone := make([]models.Service, len(after))
	for i := range gone {
		gone[i].ID = models.ServiceID(i)
	}
	if !reflect.DeepEqual(got, append(gone, after...)) {
		t.Errorf("the newest file begins with %+v", got)
	}
}
