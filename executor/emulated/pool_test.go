package emulated

import (
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// Of two devices each draws by its own seed, whatever runs on the other meanwhile.
func TestDevicesDrawApart(t *testing.T) {
	spread := formula{operator: 10 * time.Microsecond, spread: 2}
	seeded := func(seed uint64) *rig {
		return startRig(t, spread, func(o *executor.Options) { o.Inside = New(spread, seed, known, "h") })
	}
	alone, first, second := seeded(1), seeded(1), seeded(2)
	var took [3][]time.Duration
	draw := func(r *rig, i int) {
		n := len(took[i]) + 1
		r.run(uint64(n), r.on(0, models.BatchID(n), 0, operators, 1))
		took[i] = append(took[i], r.next().Spans[0].DeviceTook)
	}
	for range 5 {
		draw(first, 0)
		draw(second, 1)
	}
	for range 5 {
		draw(alone, 2)
	}
	if !slices.Equal(took[0], took[2]) || slices.Equal(took[0], took[1]) {
		t.Errorf("with seed 1: %v, alone %v; with seed 2: %v", took[0], took[2], took[1])
	}
}
