package loop

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// woken is a scheduler that is told which device something has run on.
type woken struct {
	scheduler
	device int
	at     time.Duration
}

func (w *woken) Ran(now time.Duration, device int) { w.device, w.at = device, now }

// Whatever measures, or keeps a device awake, is told to the scheduler: no pause comes
// before the next round of queries. It counts as no step of the learner.
func TestSchedulerKnowsWhatKeepsAwake(t *testing.T) {
	w, d := &woken{}, &device{index: 3}
	m := measurement{fleet: &crew{fleet: &fleet{core: &core{scheduler: w}}}}
	m.fleet.epoch = time.Now().Add(-time.Hour)
	m.start([]models.Group{{}}, d)
	m.running = true
	if over, err := m.finish(&executor.Outcome{}); !over || err != nil || w.device != 3 || w.at < time.Hour || d.ran != w.at {
		t.Errorf("%v, %v: the scheduler is told of device %d at %v, which ran at %v", over, err, w.device, w.at, d.ran)
	}
	l := &learner{measurement: measurement{beside: true}} // without what a step would be told to
	if l.over(nil, -1, nil); l.measurement.beside {
		t.Error("what kept the device awake is not over")
	}
}

// What keeps a device awake runs in the size for which the worker is prepared: of a series
// that is the size of one query.
func TestKeptWarmAsPrepared(t *testing.T) {
	on := &device{}
	m := &member{state: stateServing, service: query.NewService(0, "s"), info: &wire.Info{Solo: []wire.Solo{{Size: 2}}}, replicas: []*replica{{ready: true}}}
	l := &learner{fleet: &crew{fleet: &fleet{members: []*member{m}}}}
	for size, last := range map[int]models.Span{2: {Service: 1, Size: 9}, 4: {Size: 4}, 1: {Size: 5, Series: true}} {
		on.round.Group.Spans = []models.Span{last}
		if one, ok := l.smallest(on); !ok || one != (models.Span{End: 1, Size: size}) {
			t.Errorf("after %+v: %+v, want size %d", last, one, size)
		}
	}
}
