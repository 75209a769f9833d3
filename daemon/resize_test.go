package daemon

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models"
)

// changing is the formula, on which a batch size that changes costs.
type changing struct{ formula }

const changeCost = 30 * time.Millisecond

func (c changing) Latency(g models.Group) time.Duration {
	took := c.formula.Latency(g)
	for _, s := range g.Spans {
		if s.Resized {
			took += changeCost
		}
	}
	return took
}

func (c changing) Sample(g models.Group, _ *rand.Rand) time.Duration { return c.Latency(g) }

// Where changes cost, the daemon finds out, and fills up batches with copies of a query:
// the client has its own answer and nothing else, and nothing is left in the arenas.
func TestEmulatedChangeOfSize(t *testing.T) {
	c := emulatedConfig(t, func(c *config.Config) {
		c.Decisions.Log = true
		for i := range c.Services {
			c.Services[i].Target, c.Services[i].MaxBatch = time.Minute, 8
		}
	})
	d := serveEmulatedOn(t, c, func(c *config.Config) (*emulation, error) {
		e, err := formulaEmulation(c)
		e.device, e.history = changing{}, true
		return e, err
	})
	infer := func(size int, shape string) {
		t.Helper()
		if status, text := d.infer(0, size, 0); status != http.StatusOK || !strings.Contains(text, shape) {
			t.Fatalf("size %d: status %d: %s", size, status, text)
		}
	}
	for range 6 {
		infer(4, `"shape":[4,4]`)
		infer(1, `"shape":[1,4]`)
	}
	infer(8, `"shape":[8,4]`)
	infer(2, `"shape":[2,4]`)
	rounds := d.backend.Timeline().Read(0, 99, nil).Rounds
	if last := rounds[len(rounds)-1].Spans[0]; last.Size != 8 || last.Queries != 1 {
		t.Errorf("a query of size 2 ran as %+v, want a batch of 8", last)
	}
	for _, s := range d.backend.Services() {
		state, err := d.backend.Workers(0).State(s.ID)
		if err != nil || state.OutputLeases != 0 || state.InFlight != 0 {
			t.Errorf("%s: %+v, %v", s.Name, state, err)
		}
	}
	d.stop()
	d.replays()
}
