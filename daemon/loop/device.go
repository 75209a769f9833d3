package loop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
)

// Device is a device of the pool, as the daemon describes it.
type Device struct {
	Name       string            // in the configuration, "" for the only one
	Text       string            // in words; what is measured is kept by it
	Kind       string            // devices with the same take the same time for everything
	Emulated   bool              // it is modelled
	Alone      bool              // its groups have one span
	Units      int               // that rounds have shares of, 1 or 0 where those of a round have it together
	Ladder     bool              // its engines have sessions for each size of the ladder, where there are convolutions
	MeasuredAs string            // the device that an emulated one is made after, as datasets name it
	GPU        func() gpu.Status // nil without a GPU

	// Workers makes what runs rounds on the device, with the memory for the inputs of each
	// service in the order of the configuration, and that through which its batches move, nil
	// for none; the loop closes both. It delivers how they went, and passes on what happens to
	// workers, from when they are started.
	Workers func(inputs, moves []*wire.InputArena, outcomes chan executor.Outcome, events func(executor.Event)) (Workers, error)
}

// Workers is what a loop asks of the [executor.Executor] of a device.
type Workers interface {
	Start(context.Context) error
	Run(round uint64, spans []executor.SpanRequest) error
	Stop(models.ServiceID, models.BatchID) bool
	SetApart(round uint64) bool
	Abandon(models.ServiceID, models.BatchID)
	Release(models.ServiceID, models.BatchID)
	State(models.ServiceID) (executor.State, error)
	Restart(models.ServiceID) error
	Add(executor.ServiceSpec) error
	Remove(models.ServiceID) (<-chan struct{}, error)
	Close() error
}

// device is a device of the pool with its workers and the rounds that it runs.
type device struct {
	Device
	index int // in the scheduler's configuration
	exec  Workers
	kind  *kind

	runs  []*running // by their slots
	taken bool       // a round that measures runs, and none of queries

	moving    int   // batches on their way to the device or from it
	noWorkers error // why there are none any more, nil if there may be

	rounds uint64        // that were begun
	busy   time.Duration // that those took together which are over
	late   time.Duration // how much of it the host was late, on an emulated device
}

// running is a round that runs, or the last one in its slot.
type running struct {
	round overlap.Round
	apart observe.Apart
	limit
}

// run returns a round that runs, nil if it does not.
func (d *device) run(round uint64) *running {
	for _, r := range d.runs {
		if r.until > 0 && r.round.Number == round {
			return r
		}
	}
	return nil
}

// limit is how long a round may take.
type limit struct {
	until  time.Duration // when the spans that still run are detached, 0 while no round runs
	ended  bool          // it was ended without the spans that still ran
	spared bool          // it was given more time
}

// kind is what devices share that are alike: whatever is known of how long something
// takes, and how that becomes known.
type kind struct {
	devices   []*device // never none
	solo      *predictor.Solo
	predictor *predictor.Predictor // estimates groups, with the help of solo
	learning  *learning.Learner
	index     int
	profiled  map[models.ServiceID]string // the hash of the model that solo knows
}

// hostLate is how late a look at a round may be. If it is later the host has stalled,
// and the workers have not run either.
const hostLate = 2 * time.Millisecond

// watch ends a round that still runs at its limit, which it moves once by what a stall of
// the host took. It returns when to look again, and is false if it need not be asked
// again about this round.
func (m *limit) watch(now time.Duration, round uint64, on Workers) (next time.Duration, ok bool) {
	switch late := now - m.until; {
	case m.ended:
		return 0, false
	case late > hostLate && !m.spared:
		m.spared = true
		m.until += 2 * late
		return m.until, true
	case late < 0:
		return m.until, true
	}
	m.ended = true
	on.SetApart(round)
	return 0, false
}

// serves reports whether a round of queries runs.
func (d *device) serves() bool {
	return slices.ContainsFunc(d.runs, func(r *running) bool { return r.until > 0 })
}

// free reports whether no round runs.
func (d *device) free() bool { return !d.serves() && !d.taken }

// part returns a time for which a round has run as that of the whole device.
func (d *device) part(of *models.Outcome) time.Duration {
	if share := of.Spans[0].Span.Share; share > 0 {
		return of.Took * time.Duration(share) / time.Duration(d.Units)
	}
	return of.Took
}

// aloneFor returns why each group of the device has one span, or "" if it may have several.
func (d *device) aloneFor() string {
	switch {
	case !d.Alone:
		return ""
	case d.Units > 1:
		return fmt.Sprintf("batches run beside each other on shares of %d cores; what they cost each other is learned while they serve", d.Units)
	}
	return `without MPS services take turns on the GPU, so operators do not overlap; set mode = "own" in [mps]`
}

// profileKey names what the operator times of a model hold for.
func (k *kind) profileKey(share string, i *wire.Info) string {
	return fmt.Sprintf("%s|%s|ort %s|%d operators|%s", k.devices[0].Text, i.Hash, i.ORTVersion, len(i.Operators), share)
}

// ProfileOf reports whether a key of [SoloProfiles] is that of a model on a device, by the
// names that [models.MeasuredAs] and [models.MeasuredOn] give them.
func ProfileOf(key, device, model string) bool {
	const parts = 5
	part := strings.Split(key, "|")
	return len(part) == parts && models.MeasuredOn(part[0], strings.TrimPrefix(part[2], "ort ")) == device && models.MeasuredAs(part[1], part[4]) == model
}

// slower reports whether warming up took longer than what is known already. A
// machine that is busy while models load must not spoil a profile that is good,
// and a profile from a busy time must not outlive it.
func (k *kind) slower(spec models.Service, t wire.Solo) bool {
	known, ok := k.solo.On(t.Share).Span(models.Span{Service: spec.ID, End: spec.Operators, Size: t.Size, SeqLen: t.SeqLen})
	var took time.Duration
	for _, n := range t.Nanos {
		took += time.Duration(n)
	}
	return ok && took > known
}
