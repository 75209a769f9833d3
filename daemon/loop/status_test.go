package loop

import (
	"slices"
	"testing"

	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/segments/wire"
)

func TestCutStatus(t *testing.T) {
	if cutStatus(nil) != nil || cutStatus(&wire.Info{}) != nil {
		t.Error("nothing was chosen")
	}
	o := cutStatus(&wire.Info{Cut: &wire.CutChoice{Reason: "why", Costs: []wire.CutCost{{Segments: 4, Batch: 8, WholeNanos: 2e6, CutNanos: 3e6}}}})
	if o.Reason != "why" || !slices.Equal(o.Costs, []status.CutCost{{Operators: 4, Batch: 8, WholeMS: 2, CutMS: 3, Percent: 50}}) {
		t.Errorf("%+v", o)
	}
}

// told collects the counts of queries that were turned away.
type told []uint64

func (l *told) Observe(e *observe.Event) {
	if e.Kind == observe.TurnedAway && e.Service.ID == 0 {
		*l = append(*l, e.Turned[slices.Index(query.TurnedAwayFor[:], query.ReasonGivenUp)])
	}
}

// What does not come to the scheduler is told once, and is in the status all the same.
func TestTurnedAway(t *testing.T) {
	var news told
	inputs, err := wire.NewInputArena(1, false)
	if err != nil {
		t.Fatal(err)
	}
	defer inputs.Close()
	m := &service{entry: query.NewService(0, "a"), inputs: inputs, line: new(lineage)}
	f := &services{env: &env{options: Options{Listeners: []observe.Listener{&news}}, mail: newMailbox()}, list: []*service{m}, specs: make([]models.Service, 1)}
	f.turnedAway()
	for _, reason := range []string{query.ReasonGivenUp, query.ReasonGivenUp, query.ReasonInvalid} {
		m.entry.Stats.TurnAway(query.Unavailable(reason, "no"))
	}
	f.turnedAway()
	f.turnedAway()
	m.entry.Stats.TurnAway(query.Unavailable(query.ReasonGivenUp, "no"))
	f.turnedAway()
	if !slices.Equal(news, told{2, 1}) {
		t.Errorf("%v, want 2 and then 1", news)
	}
	if got := serviceStatus(m, 0, overlap.ServiceMetrics{}, overlap.Waiting{}).Refused; got[query.ReasonGivenUp] != 3 || len(got) != 1 {
		t.Errorf("refused %v", got)
	}
}

// TestInputsCanBePinned makes memory for inputs that a worker on a GPU can map to write,
// which the driver wants, and only where there is a GPU.
func TestInputsCanBePinned(t *testing.T) {
	for _, there := range []bool{false, true} {
		f := &services{env: &env{options: Options{Devices: []Device{{}, {}}}}}
		f.env.config.Worker.InputBytes = 1
		if there {
			f.env.options.Devices[1].GPU = func() (s gpu.Status) { return s }
		}
		inputs, err := f.newInputs()
		if err != nil {
			t.Fatal(err)
		}
		memory, err := wire.MapArena(inputs.File().Fd(), true)
		if (err == nil) != there {
			t.Errorf("a GPU in the pool: %t, mapped to write: %v", there, err)
		}
		wire.Unmap(memory)
		if _, err := inputs.Close(); err != nil {
			t.Error(err)
		}
	}
}
