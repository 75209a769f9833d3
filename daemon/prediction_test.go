package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// predictorText returns a predictor file of two services as text.
func predictorText(t *testing.T, change func(*predictor.File)) string {
	t.Helper()
	f := fakeworkers.Predictor(2)
	if change != nil {
		change(f)
	}
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Whatever is wrong with the configured predictor is told in the status and in
// the log, and the daemon serves without it, measuring nothing.
func TestConfiguredPredictor(t *testing.T) {
	const pipe = "a pipe"
	good := predictorText(t, nil)
	for name, c := range map[string]struct {
		text string // "" for no file
		says []string
	}{
		"missing":     {"", []string{"no such file"}},
		"a pipe":      {pipe, []string{"x.predictor.json: it is not a regular file"}},
		"truncated":   {good[:len(good)/2], []string{"truncated"}},
		"NaN":         {strings.Replace(good, `"bias":[1]`, `"bias":[NaN]`, 1), []string{"invalid character"}},
		"next format": {strings.Replace(good, "predictor/1", "predictor/2", 1), []string{"overlapd-predictor/2"}},
		"other device": {predictorText(t, func(f *predictor.File) { f.Device = "abacus" }),
			[]string{`trained on "abacus"`, `this is "fake, ONNX Runtime 0"`}},
		"other hash": {predictorText(t, func(f *predictor.File) { f.Features.Models[1].Hash = "beef" }),
			[]string{"s1", "trained with model file beef, it has model file "}},
		"other cut": {predictorText(t, func(f *predictor.File) {
			m := &f.Features.Models[1]
			m.Operators = 3
			for i := range m.Costs {
				m.Costs[i].Micros, m.Costs[i].Work = m.Costs[i].Micros[:3], m.Costs[i].Work[:3]
			}
		}), []string{"s1", "3 operators, it has 4"}},
		"unknown models": {predictorText(t, func(f *predictor.File) {
			f.Features.Models[0].Name, f.Features.Models[0].Hash = "x", "x"
			f.Features.Models[1].Name, f.Features.Models[1].Hash = "y", "y"
		}), []string{`unknown are those of ["s0" "s1"]`}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.predictor.json")
			if c.text == pipe { // nobody writes to it
				if err := syscall.Mkfifo(path, 0o600); err != nil {
					t.Fatal(err)
				}
			} else if c.text != "" {
				writeFile(t, path, c.text)
			}
			r := startRig(t, rigOptions{services: 2, device: &fakeworkers.Calm, change: func(config *config.Config) { config.Predictor.File = path }})
			p := r.await("solo")
			says(t, p.Reason, append(c.says, "the configured predictor was rejected")...)
			says(t, unquoted(r.log.String()), c.says...)
			if p.File != nil || p.Measuring != nil {
				t.Errorf("%+v", p)
			}
			r.serves()
			for _, spans := range r.workers.Sent() {
				if len(spans) > 1 {
					t.Errorf("a group of %v without a predictor", spans)
				}
			}
		})
	}
}

// unquoted returns a log without the escapes of JSON.
func unquoted(log string) string { return strings.ReplaceAll(log, `\"`, `"`) }

func TestConfiguredPredictorThatFits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.predictor.json")
	if err := fakeworkers.Predictor(2).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	r := startRig(t, rigOptions{services: 3, device: &fakeworkers.Calm, change: func(c *config.Config) { c.Predictor.File = path }})
	p := r.await("serving")
	says(t, p.Reason, "trained on 1000 groups at 2024-02-29 12:00:00", "does not cover s2")
	if p.File == nil || p.File.Rows != 1000 || p.File.MAPE != 3 {
		t.Errorf("%+v", p.File)
	}
	r.serves()
	for _, spans := range r.workers.Sent() {
		if spans[0].Batch >= measuringIDs {
			t.Errorf("%v is measured though there is a predictor", spans)
		}
	}
}

// put stores predictors in a new state folder.
func put(t *testing.T, files ...*predictor.File) (dir string) {
	t.Helper()
	dir = t.TempDir()
	s, err := OpenState(dir, false, checkState)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i, f := range files {
		f.Created = f.Created.Add(time.Duration(i) * time.Hour)
		if err := s.Datasets().PutPredictor(f); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Of the stored predictors the newest one is used that fits.
func TestNewestStoredPredictorThatFits(t *testing.T) {
	old, newer, other, damaged := fakeworkers.Predictor(2), fakeworkers.Predictor(2), fakeworkers.Predictor(2), fakeworkers.Predictor(2)
	other.Device, damaged.Layers = "abacus", nil
	r := startRig(t, rigOptions{services: 2, device: &fakeworkers.Calm, dir: put(t, old, newer, other, damaged)})
	says(t, r.await("serving").Reason, "at 2024-02-29 13:00:00")
	says(t, r.log.String(), "abacus", "a stored predictor does not match")
}

// A worker that comes back with another model is not served with a predictor
// of the one before.
func TestModelChangeRebinds(t *testing.T) {
	r := startRig(t, rigOptions{services: 2, device: &fakeworkers.Calm, dir: put(t, fakeworkers.Predictor(2))})
	r.await("serving")
	r.workers.Kill(1)
	r.workers.Revive(1, fakeworkers.Operators+1)
	r.sync()
	says(t, r.await("solo").Reason, "20 of 20")
	r.serves()
	r.workers.Kill(1)
	r.workers.Revive(1, fakeworkers.Operators)
	r.await("serving")
	r.stop()
	d, _ := stored(t, r.Config().StateDir)
	if want := []training.Model{fakeworkers.Model(0, fakeworkers.Operators), fakeworkers.Model(1, fakeworkers.Operators+1)}; !slices.Equal(d.Models, want) {
		t.Errorf("measured %+v, want %+v", d.Models, want)
	}
}

// A worker that comes back with the same model changes nothing.
func TestSameModelKeepsThePredictor(t *testing.T) {
	r := startRig(t, rigOptions{services: 2, device: &fakeworkers.Calm, dir: put(t, fakeworkers.Predictor(2))})
	r.await("serving")
	r.workers.Kill(1)
	r.workers.Revive(1, fakeworkers.Operators)
	r.sync()
	if p := r.predictor(); p.Phase != "serving" {
		t.Errorf("%s: %s", p.Phase, p.Reason)
	}
	if n := strings.Count(r.log.String(), "prediction of operator groups"); n != 1 {
		t.Errorf("%d changes were told", n)
	}
}

// What was measured of a model that is replaced meanwhile is not stored as that
// of the next.
func TestModelChangeWhileMeasuring(t *testing.T) {
	r := startRig(t, rigOptions{services: 2})
	for {
		if _, spans := r.workers.AwaitRound(); spans[0].Service == 1 && spans[0].End == 2 {
			break // in the middle of a step of service 1
		}
		r.workers.End(models.SpanDone)
		r.sync()
	}
	r.workers.Kill(1)
	r.workers.Revive(1, fakeworkers.Operators+2)
	r.sync()
	r.workers.RunsOn(&fakeworkers.Calm)
	says(t, r.await("solo").Reason, "20 of 20")
	r.stop()
	// Of the first model there is what it took alone.
	d, _ := stored(t, r.Config().StateDir, fakeworkers.Model(1, fakeworkers.Operators))
	if fakeworkers.Rows(t, d, &fakeworkers.Calm); len(d.Rows) != 1 {
		t.Errorf("%d rows of the first model", len(d.Rows))
	}
	d, operators := stored(t, r.Config().StateDir, fakeworkers.Model(0, fakeworkers.Operators), fakeworkers.Model(1, fakeworkers.Operators+2))
	fakeworkers.Rows(t, d, &fakeworkers.Calm)
	if times := operators["s1"]; len(times) != 2 || len(times[0].Micros) != fakeworkers.Operators+2 {
		t.Errorf("operator times: %v", times)
	}
}

// What is fitted is served with at once, stored, and used at the next start.
func TestFittedPredictorIsServedWith(t *testing.T) {
	var rows int
	var operators map[string][]training.OperatorTimes
	o := rigOptions{services: 2, device: &fakeworkers.Calm, dir: t.TempDir()}
	o.fit = func(_ context.Context, d *training.Dataset, times map[string][]training.OperatorTimes) (*predictor.File, error) {
		rows, operators = len(d.Rows), times
		return fakeworkers.Predictor(2), nil
	}
	r := startRig(t, o)
	r.await("serving")
	r.serves()
	r.stop()
	if rows != 4+12 || len(operators["s0"]) != 2 || len(operators["s1"]) != 2 {
		t.Errorf("fitted to %d rows and %v", rows, operators)
	}
	r = startRig(t, o)
	r.await("serving")
	if n := len(r.workers.Sent()); n != 0 {
		t.Errorf("%d rounds were measured though there is a predictor", n)
	}
}

func TestFittingFails(t *testing.T) {
	wrong := fakeworkers.Predictor(2)
	wrong.Device = "abacus"
	for name, c := range map[string]struct {
		file *predictor.File
		err  error
		says string
	}{
		"error": {nil, errNoFit, "training failed: the rows do not suffice"},
		"wrong": {wrong, nil, `training failed: `},
	} {
		t.Run(name, func(t *testing.T) {
			o := rigOptions{services: 2, device: &fakeworkers.Calm, dir: t.TempDir()}
			o.fit = func(context.Context, *training.Dataset, map[string][]training.OperatorTimes) (*predictor.File, error) {
				return c.file, c.err
			}
			r := startRig(t, o)
			says(t, r.await("solo").Reason, c.says)
			says(t, r.log.String(), "training")
			r.serves()
			r.stop()
			s, err := OpenState(o.dir, true, checkState)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if files, err := s.Datasets().Predictors(); err != nil || len(files) != 0 {
				t.Errorf("stored: %v, %v", files, err)
			}
		})
	}
}

// endlessFit fits nothing before it is told to end.
type endlessFit struct{ began, ended chan struct{} }

func newEndlessFit() endlessFit {
	return endlessFit{make(chan struct{}, 8), make(chan struct{}, 8)}
}

func (e endlessFit) fit(ctx context.Context, _ *training.Dataset, _ map[string][]training.OperatorTimes) (*predictor.File, error) {
	e.began <- struct{}{}
	<-ctx.Done()
	e.ended <- struct{}{}
	return nil, errors.New("signal: killed")
}

// within waits for what must happen.
func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("waited in vain for " + what)
	}
}

// A predictor that is being fitted to models that are gone is given up.
func TestModelChangeWhileFitting(t *testing.T) {
	e := newEndlessFit()
	r := startRig(t, rigOptions{services: 2, device: &fakeworkers.Calm, fit: e.fit})
	within(t, "fitting", e.began)
	r.workers.Kill(0)
	r.workers.Revive(0, fakeworkers.Operators+1)
	within(t, "the end of fitting", e.ended)
	within(t, "fitting to the next models", e.began)
	if p := r.predictor(); p.Phase != "training" {
		t.Errorf("%s: %s", p.Phase, p.Reason)
	}
}

// Fitting ends with the daemon, which does not blame it.
func TestStopWhileFitting(t *testing.T) {
	e := newEndlessFit()
	r := startRig(t, rigOptions{services: 2, device: &fakeworkers.Calm, fit: e.fit})
	within(t, "fitting", e.began)
	r.serves()
	r.stop()
	within(t, "the end of fitting", e.ended)
	if log := r.log.String(); strings.Contains(log, `"level":"warn"`) {
		t.Errorf("log:\n%s", log)
	}
}

// What is stored and cannot be read is told; the daemon serves.
func TestUnreadableMeasurements(t *testing.T) {
	r := newRig(t, rigOptions{services: 2, device: &fakeworkers.Calm})
	if err := os.Remove(filepath.Join(r.Config().StateDir, stateName)); err != nil {
		t.Fatal(err)
	}
	r.turn()
	if err := r.workers.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	says(t, r.await("solo").Reason, "the measurements cannot be used: the state file was changed by another program")
	r.serves()
}
