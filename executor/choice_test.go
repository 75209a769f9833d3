package executor

import (
	"syscall"
	"testing"

	"github.com/overlapd/overlapd/segments/wire"
)

// A worker that is started again is told what the one before it chose; the
// specification of others that share the question stays as it was.
func TestRemembersChoice(t *testing.T) {
	asked := &wire.ChooseSpec{Finest: 7}
	f := start(t, func(o *Options) { o.Services[0].Load.Choose = asked }, "", "")
	chosen := awaitEvent(f, WorkerReady, func(e Event) bool { return e.Service == 0 }).Info.Cut
	if chosen == nil || chosen.Reason != "measured" {
		t.Fatalf("%+v", chosen)
	}
	if err := syscall.Kill(awaitPID(f), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if c := awaitEvent(f, WorkerReady, func(e Event) bool { return e.Service == 0 }).Info.Cut; c.Reason != "known" || c.Target != chosen.Target {
		t.Errorf("%+v", c)
	}
	if asked.Known != nil {
		t.Error("the question was changed")
	}
	if c := awaitEvent(f, WorkerReady, func(e Event) bool { return e.Service == 1 }).Info.Cut; c != nil {
		t.Errorf("nobody asked for %+v", c)
	}
}
