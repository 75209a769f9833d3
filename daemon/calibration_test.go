package daemon

import (
	"slices"
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
)

// learned returns of which services alone it was learned how well they are
// predicted.
func (r *rig) learned() (names []string) {
	r.t.Helper()
	for _, s := range r.predictor().Shapes {
		if len(s.Services) == 1 && s.Runs > 0 {
			names = append(names, s.Services[0])
		}
	}
	slices.Sort(names)
	return names
}

// What was learned of a model is not believed of another one that a worker comes
// back with.
func TestCalibrationOfAModelThatChanged(t *testing.T) {
	r := startRig(t, rigOptions{services: 2, device: &fakeworkers.Calm, dir: put(t, fakeworkers.Predictor(2))})
	r.await("serving")
	r.serves()
	if got := r.learned(); !slices.Equal(got, []string{"s0", "s1"}) {
		t.Fatalf("learned of %q", got)
	}
	r.workers.Kill(1)
	r.workers.ReviveAs(1, fakeworkers.Operators, "another model")
	r.sync()
	if got := r.learned(); !slices.Equal(got, []string{"s0"}) {
		t.Errorf("learned of %q, and s1 has another model", got)
	}
}

// A calibration refers to services by their index. It is stored for the models at these
// indexes: with other models, a daemon that starts learns from scratch.
func TestCalibrationOfOtherModelsIsNotTaken(t *testing.T) {
	dir := put(t, fakeworkers.Predictor(3))
	r := startRig(t, rigOptions{services: 3, device: &fakeworkers.Calm, dir: dir})
	rr := &reloadRig{rig: r, result: make(chan reloaded, 1), steps: make(chan config.Step, 1000)}
	r.await("serving")
	middle := r.Daemon.Config().Services[1]
	rr.reload(func(c *config.Config) { c.Services = slices.Delete(c.Services, 1, 2) })
	rr.gone()
	rr.begin(func(c *config.Config) { c.Services = slices.Insert(c.Services, 1, middle) })
	if id := rr.joins(); id != 1 {
		t.Fatalf("it has member %d", id)
	}
	r.workers.ReviveAs(1, fakeworkers.Operators, "another model")
	rr.end()
	r.serves()
	if got := r.learned(); len(got) != 3 {
		t.Fatalf("learned of %q", got)
	}
	r.stop()

	again := startRig(t, rigOptions{services: 3, device: &fakeworkers.Calm, dir: dir})
	again.await("serving")
	if got := again.learned(); slices.Contains(got, "s1") {
		t.Errorf("learned of %q, of which s1 had another model then", got)
	}
}

// A daemon that starts with the models that it had goes on with what it learned.
func TestCalibrationIsTakenAgain(t *testing.T) {
	dir := put(t, fakeworkers.Predictor(2))
	r := startRig(t, rigOptions{services: 2, device: &fakeworkers.Calm, dir: dir})
	r.await("serving")
	r.serves()
	r.stop()
	again := startRig(t, rigOptions{services: 2, device: &fakeworkers.Calm, dir: dir})
	again.await("serving")
	if got := again.learned(); len(got) != 2 {
		t.Errorf("learned of %q", got)
	}
}
