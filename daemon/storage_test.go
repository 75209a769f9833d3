package daemon

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/statefile"
	"github.com/overlapd/overlapd/daemon/status"
)

// fakeLog is a decision log.
type fakeLog struct {
	lost  uint64
	fault error
}

func (f *fakeLog) Lost() (uint64, error) { return f.lost, f.fault }

func TestStorage(t *testing.T) {
	path := filepath.Join(t.TempDir(), stateName)
	file, err := statefile.Open(path, checkState)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	first := &fakeLog{lost: 3}
	s := published{state: &State{db: file}, decisions: first}
	var now, later metrics.Scrape
	if faults := s.unstored(&now); len(faults) > 0 || now.Storage.StateLost || now.Storage.LogStopped || now.Storage.DecisionsLost != 3 {
		t.Errorf("%q, %+v", faults, now.Storage)
	}

	first.lost, first.fault = 4, errors.New("no space left on device")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := file.View(nil); !errors.Is(err, statefile.ErrLost) {
		t.Fatal(err)
	}
	faults := s.unstored(&later)
	if len(faults) != 2 {
		t.Fatalf("%q", faults)
	}
	says(t, faults[0], "until the daemon is restarted", "no such file")
	says(t, faults[1], "4 events were lost: no space left on device")
	if !later.Storage.StateLost || !later.Storage.LogStopped || later.Storage.DecisionsLost != 4 {
		t.Errorf("%+v", later.Storage)
	}
}

// A daemon whose state file was damaged serves on, and says everywhere that it
// stores nothing.
func TestNotStored(t *testing.T) {
	d := serveEmulated(t, emulatedConfig(t, func(c *config.Config) { c.Metrics, c.Decisions.Log = true, true }))
	told := func(metric, fault string) {
		t.Helper()
		body, _ := d.get("/overlapd/status")
		var o status.Status
		if err := json.Unmarshal([]byte(body), &o); err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(o.NotStored, "; "); (all == "") != (fault == "") || !strings.Contains(all, fault) {
			t.Errorf("status: %q, want %q", all, fault)
		}
		text, _ := d.get("/metrics")
		says(t, text, "\noverlapd_state_file_lost "+metric+"\n", "\noverlapd_decision_log_stopped 0\n", "\noverlapd_decisions_lost_total 0\n")
	}
	told("0", "")
	if err := os.Truncate(filepath.Join(d.Config().StateDir, stateName), 100); err != nil {
		t.Fatal(err)
	}
	if _, err := d.state.datasets.Predictors(); !errors.Is(err, statefile.ErrLost) {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // a text is told for a quarter of a second
	told("1", "it had")
	if status, text := d.infer(0, 1, 0); status != 200 {
		t.Errorf("status %d: %s", status, text)
	}
}
