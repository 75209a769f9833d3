package daemon

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/worker"
)

// lateHost is an emulated device on a host that is late: the daemon hears of each span
// that has ended after by.
type lateHost struct {
	executor.Inside
	by time.Duration
}

func (l lateHost) Serve(ctx context.Context, id models.ServiceID, files worker.Files) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	daemon, ours, theirs := files.Socket, os.NewFile(uintptr(pair[0]), "late"), os.NewFile(uintptr(pair[1]), "worker")
	var copying sync.WaitGroup
	copying.Go(func() {
		_, _ = io.Copy(ours, daemon) // until either end is closed
		_ = unix.Shutdown(pair[0], unix.SHUT_RDWR)
	})
	copying.Go(func() { _, _ = io.Copy(daemon, lateReader{ours, l.by}) })
	files.Socket = theirs
	err = errors.Join(l.Inside.Serve(ctx, id, files), theirs.Close(), daemon.SetReadDeadline(time.Now()))
	copying.Wait()
	return errors.Join(err, ours.Close())
}

type lateReader struct {
	from io.Reader
	by   time.Duration
}

func (l lateReader) Read(to []byte) (int, error) {
	n, err := l.from.Read(to)
	time.Sleep(l.by)
	return n, err
}

// TestLateHostIsNoTimeOfTheDevice runs groups of 0.3 ms on an emulated device of which the
// host hears 20 ms late. The predictor learns the device's times. With those of the host
// nothing would be overlapped after a few groups: they take 60 times what it predicts.
func TestLateHostIsNoTimeOfTheDevice(t *testing.T) {
	const late, turns = 20 * time.Millisecond, 24
	path := filepath.Join(t.TempDir(), "p.predictor.json")
	if err := formulaFile().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	d := serveEmulatedBy(t, emulatedConfig(t, func(c *config.Config) {
		c.Predictor.File, c.Decisions.Log = path, true
		for i := range c.Services {
			c.Services[i].MaxBatch = 1
		}
	}), Options{emulation: formulaEmulation, workers: func(o executor.Options) (loop.Workers, error) {
		o.Inside = lateHost{o.Inside, late}
		return executor.New(o)
	}})
	for range turns {
		var clients sync.WaitGroup
		for i := range 6 {
			clients.Go(func() {
				if status, text := d.infer(i%2, 1, 8); status != http.StatusOK {
					t.Errorf("status %d: %s", status, text)
				}
			})
		}
		clients.Wait()
	}
	s, ok := d.backend.FullStatus()
	if !ok {
		t.Fatal("no status")
	}
	groups := uint64(0)
	for _, shape := range s.Predictor.Shapes {
		if shape.P99 > 2 || shape.Bound > 2 {
			t.Errorf("%s of %s: %d runs, p99 %.1f times the prediction, bound %.1f", shape.Source, shape.Services, shape.Runs, shape.P99, shape.Bound)
		}
		if len(shape.Services) == 2 {
			groups += shape.Runs
		}
	}
	if groups < turns {
		t.Errorf("%d groups of both services have run", groups)
	}
	for _, one := range s.Services {
		if one.Overruns > 0 {
			t.Errorf("%s: %d rounds had ended on the device and count as overruns", one.Name, one.Overruns)
		}
	}
	if least := (late * time.Duration(s.Rounds)).Seconds(); s.HostLateSeconds < least {
		t.Errorf("the host was late by %.2f s, want at least %.2f", s.HostLateSeconds, least)
	}
	body, _ := d.get("/metrics")
	says(t, body, "overlapd_host_late_seconds_total")
	for _, r := range d.backend.Timeline().Read(0, 256, nil).Rounds {
		if on := r.Took - r.Late; r.End > 0 && (r.Late < late || on > 2*formulaOperators*formulaOperator) {
			t.Fatalf("round %d took %v, of which the host was late %v", r.Number, r.Took, r.Late)
		}
	}
	d.stop()
	predicted, slow := map[uint64]time.Duration{}, 0
	for _, r := range d.replays() {
		if r.Round != nil {
			predicted[r.Round.Number] = r.Round.Predicted.Latency
		} else if p := predicted[r.Outcome.Round]; p > 0 && r.Outcome.Latency > 2*p {
			slow++
		}
	}
	if slow > len(predicted)/100 {
		t.Errorf("the decision log: %d of %d rounds took more than twice the prediction", slow, len(predicted))
	}
}
