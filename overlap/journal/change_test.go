package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
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
	dir := t.TempDir()
	o := quick()
	o.MaxFileBytes, o.MaxFiles = 1<<16, 100
	w, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	l := newLoad(t, w, "overlap")
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
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) < 2 {
		t.Fatalf("files %v, %v", names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		report, err := Replay(filepath.Base(name), bytes.NewReader(text), ReplayOptions{})
		if err != nil || !report.Reproduced || report.Rounds == 0 {
			t.Fatalf("%s: %v, %+v", name, err, report)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	var h head
	if err := json.Unmarshal(text[:bytes.IndexByte(text, '\n')], &h); err != nil {
		t.Fatal(err)
	}
	got := h.Config.Services
	if len(got) != 2*len(after) || !reflect.DeepEqual(got[0], models.Service{}) || !reflect.DeepEqual(got[len(after):], after) {
		t.Errorf("the newest file begins with %+v", got)
	}
}
