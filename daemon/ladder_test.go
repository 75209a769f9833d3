package daemon

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models"
)

// Where other sizes have a cost, the daemon forms batches of 1, 2, 4 and 8, also after a
// reload. Without such a cost it batches all queued queries.
func TestEmulatedLadder(t *testing.T) {
	level := zerolog.GlobalLevel() // which a reload sets
	defer func() { zerolog.SetGlobalLevel(level) }()
	for name, ladder := range map[string]bool{"ladder": true, "any size": false} {
		t.Run(name, func(t *testing.T) {
			c := emulatedConfig(t, func(c *config.Config) {
				c.Decisions.Log = true
				for i := range c.Services {
					c.Services[i].Target, c.Services[i].MaxBatch = time.Minute, 8
				}
			})
			d := serveEmulatedOn(t, c, func(c *config.Config) (*emulation, error) {
				e, err := formulaEmulation(c)
				for i := range e.known {
					e.known[i].Ladder = ladder
				}
				return e, err
			})
			seen := uint64(0)
			for _, target := range []time.Duration{time.Minute, 2 * time.Minute} {
				next := d.Config()
				next.Services = slices.Clone(next.Services)
				next.Services[0].Target = target
				if done, err := d.Reload(context.Background(), next, nil); err != nil || len(done.Failed) > 0 {
					t.Fatalf("%+v, %v", done, err)
				}
				sizes, rounds := map[int]bool{}, 0
				off := func() bool {
					for size := range sizes {
						if !models.OnLadder(size) {
							return true
						}
					}
					return false
				}
				for ; rounds < 50 && (ladder || !off()); rounds++ {
					if n := d.burstOf(23, 1); n != 23 {
						t.Fatalf("%d queries were answered\n%s", n, d.log)
					}
					page := d.backend.Timeline().Read(seen, 1<<20, nil)
					seen = page.Next
					for _, r := range page.Rounds {
						for _, s := range r.Spans {
							sizes[s.Size] = true
						}
					}
				}
				if off() == ladder || ladder && len(sizes) < 2 {
					t.Errorf("batches have the sizes %v", sizes)
				}
			}
			d.stop()
			d.replays()
		})
	}
}
