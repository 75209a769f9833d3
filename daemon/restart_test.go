package daemon

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
)

// givingUp is an executor of which some services were given up.
type givingUp struct {
	loop.Workers
	phases    []executor.Phase
	restarted []models.ServiceID
}

func (g *givingUp) State(id models.ServiceID) (executor.State, error) {
	return executor.State{Phase: g.phases[id]}, nil
}

func (g *givingUp) Restart(id models.ServiceID) error {
	g.restarted = append(g.restarted, id)
	return nil
}

func TestRestart(t *testing.T) {
	g := &givingUp{phases: []executor.Phase{executor.Ready, executor.GivenUp, executor.Ready}}
	b := newBackend(t, fakeworkers.Config(3, nil), g, nil)
	d := b.daemon
	b.Services()[2].GivenUp.Store(true)
	for _, test := range []struct {
		service, want string
		is            error
	}{
		{"s0", "this one is ready", ErrNotGivenUp},
		{"s1", "", nil},
		{"s2", "change the model and reload", ErrNotGivenUp},
		{"other", "overlapd status lists them", ErrNoService},
	} {
		err := d.Restart(test.service)
		if !errors.Is(err, test.is) || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.service, err)
		}
	}
	if !slices.Equal(g.restarted, []models.ServiceID{1}) {
		t.Errorf("restarted %v", g.restarted)
	}
}

// A service with variants is restarted by its name, which is for those that were given up,
// and each variant by its own.
func TestRestartVariants(t *testing.T) {
	g := &givingUp{phases: []executor.Phase{executor.Ready, executor.GivenUp, executor.Ready}}
	b := newBackend(t, fakeworkers.Config(3, func(c *config.Config) {
		for i, name := range []string{"a", "b", "c"} {
			c.Services[i].Name, c.Services[i].Variants = "f/"+name, []config.Variant{{Name: name, Accuracy: float64(i + 1)}}
		}
	}), g, nil)
	for _, test := range []struct {
		service string
		want    error
	}{{"f", nil}, {"f/b", nil}, {"f/a", ErrNotGivenUp}, {"f/d", ErrNoService}, {"b", ErrNoService}} {
		if err := b.daemon.Restart(test.service); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", test.service, err)
		}
	}
	if !slices.Equal(g.restarted, []models.ServiceID{1, 1}) {
		t.Errorf("restarted %v", g.restarted)
	}
	g.phases[1] = executor.Ready
	if err := b.daemon.Restart("f"); !errors.Is(err, ErrNotGivenUp) {
		t.Errorf("none was given up: %v", err)
	}
}
