package loop

import (
	"testing"
	"time"
)

// apart counts the rounds that are ended without what still runs of them.
type apart struct {
	Workers
	rounds int
}

func (a *apart) SetApart(uint64) bool {
	a.rounds++
	return true
}

// A look at a round that comes late, since the host has stalled, gives the round as
// much time as the stall has taken, once.
func TestStallIsNoOverrun(t *testing.T) {
	workers := &apart{}
	o, d := &mailbox{epoch: time.Now()}, &device{exec: workers}
	limit := o.Now() - time.Hour
	next, ok := d.watch(o.Now(), 1, &limit)
	if left := next - o.Now(); !ok || workers.rounds > 0 || next != limit || left < 59*time.Minute || left > 61*time.Minute {
		t.Fatalf("after a stall of an hour: %v, %v more; %d rounds ended", ok, left, workers.rounds)
	}
	if again, ok := d.watch(o.Now(), 1, &limit); !ok || again != next || workers.rounds > 0 {
		t.Errorf("before the new limit: %v, %v; %d rounds ended", again, ok, workers.rounds)
	}
	limit = o.Now() - time.Hour
	if _, ok := d.watch(o.Now(), 1, &limit); ok || workers.rounds != 1 {
		t.Errorf("at the new limit: %v; %d rounds ended", ok, workers.rounds)
	}
}
