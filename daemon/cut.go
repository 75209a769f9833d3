package daemon

import (
	"fmt"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/training"
)

const (
	// chooseBudget is how long a worker may measure what cutting its model costs,
	// the first time; choosePart is which part of worker.load_timeout that is at
	// most.
	chooseBudget = 20 * time.Second
	choosePart   = 4
)

// cutBucket holds into how many operators models are cut, as was measured.
var cutBucket = []byte("cut-choices")

// question asks the worker of a service on a GPU to choose into how many
// operators its model is cut, if the configuration does not say. It has what was
// chosen before, if that is known: then nothing is measured.
func (u *instance) question(path string, s *config.Service) *wire.ChooseSpec {
	if s.Cut != 0 {
		return nil
	}
	q := &wire.ChooseSpec{BudgetNanos: int64(min(chooseBudget, u.config.Worker.LoadTimeout/choosePart))}
	if u.given(s) > 0 {
		q.Finest = wire.FinestChoice // what it takes is bounded, and was admitted
	}
	if u.state == nil {
		return q
	}
	hash, err := hashModel(path)
	if err != nil {
		return q // the worker says what is wrong with it
	}
	if q.Known, err = u.state.cut(u.cutKey(hash, u.placeOf(s).Share, s.MaxBatch)); err != nil {
		u.log.Warn().Err(err).Str("service", s.Name).Msg("the stored choice of a cut cannot be read; it is made again")
	}
	return q
}

// cutKey names what a choice holds for: the model, the device, and what part of
// it the service has. What else it depends on, the choice says itself.
func (u *instance) cutKey(hash, share string, maxBatch int) []byte {
	return fmt.Appendf(nil, "%s|%s|%s|max_batch %d|tf32 %t", u.device, hash, share, maxBatch, u.config.CUDA.TF32)
}

// shareOf returns what else than the device decides how long a service's
// operators take: its threads, and its part of a GPU that it shares.
func shareOf(threads int, s *config.Service, gpu bool) string {
	text := fmt.Sprintf("%d threads", threads)
	if p := s.MPS.Percentage; gpu && p > 0 {
		text += fmt.Sprintf(", MPS %d%%", p)
	}
	return text
}

// ChoseCut implements [loop.Profiles].
func (u *instance) ChoseCut(s config.Service, share string, c *wire.CutChoice) {
	key := u.cutKey(c.Hash, share, s.MaxBatch)
	u.keeper.Keep("storing the choice of a cut", func(*training.Store) error { return u.state.saveCut(key, c) })
}

// saveCut stores a choice.
func (s *state) saveCut(key []byte, c *wire.CutChoice) error { return s.save(cutBucket, key, c) }

// cut returns what was stored under key, nil if nothing was.
func (s *state) cut(key []byte) (*wire.CutChoice, error) {
	c := &wire.CutChoice{}
	if ok, err := s.load(cutBucket, key, c); !ok || err != nil {
		return nil, err
	}
	return c, nil
}
