package mps

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/internal/fakes/fakemps"
)

// checker holds the events of one control to what their comments promise.
type checker struct {
	up     bool
	active map[int]bool
	starts int
}

func (k *checker) see(e Event) error {
	switch e.Kind {
	case ServerActive:
		if !k.up || k.active[e.PID] {
			return fmt.Errorf("%#v while up is %v and active are %v", e, k.up, k.active)
		}
		k.active[e.PID] = true
	case ServerFaulted:
		if !k.active[e.PID] {
			return fmt.Errorf("%#v while active are %v", e, k.active)
		}
		delete(k.active, e.PID)
	case ServerDied:
		if !k.up {
			return fmt.Errorf("%#v while down", e)
		}
		delete(k.active, e.PID)
	case ControlDied:
		if e.Err == nil {
			return fmt.Errorf("%#v without a reason", e)
		}
		k.up = false
		clear(k.active)
	case Restarted:
		if k.starts++; e.Starts != k.starts || e.PID == 0 {
			return fmt.Errorf("%#v, expected start %d", e, k.starts)
		}
		k.up = true
		clear(k.active)
	case GaveUp:
		return fmt.Errorf("%#v", e)
	}
	return nil
}

// Servers and daemons are killed, restarted and used in a random order, from
// several sides at once. Events keep their promises, and at the end all is
// well and nothing is left.
func TestChaos(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	o.RestartLimit = 1000
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	checked := make(chan error, 1)
	go func() {
		k := checker{up: true, active: map[int]bool{}, starts: 1}
		for e := range c.Events() {
			if err := k.see(e); err != nil {
				checked <- err
				return
			}
		}
		checked <- nil
	}()
	var sides sync.WaitGroup
	for seed := range uint64(3) {
		sides.Go(func() { disturb(t.Context(), c, o, rand.New(rand.NewPCG(seed, 7))) })
	}
	sides.Wait()
	eventually(t, "it serves again", func() bool {
		return c.State().Phase == PhaseRunning && healthy(t.Context(), c) == nil
	})
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-checked; err != nil {
		t.Error(err)
	}
}

// disturb does a few random things; that they fail is no fault here.
func disturb(ctx context.Context, c *Control, o Options, random *rand.Rand) {
	for range 8 {
		switch state := c.State(); random.IntN(5) {
		case 0:
			if state.PID > 0 {
				_ = unix.Kill(state.PID, unix.SIGKILL)
			}
		case 1:
			if len(state.Servers) > 0 {
				_ = unix.Kill(state.Servers[0], unix.SIGKILL)
			}
		case 2:
			_ = startServer(ctx, c.Console())
		case 3:
			if client, err := fakemps.Connect(o.pipe()); err == nil {
				client.Close()
			}
		case 4:
			_ = c.TerminateClient(ctx, 1)
		}
	}
}

// Two devices have a daemon each; the end of one does not touch the other.
func TestTwoDevices(t *testing.T) {
	t.Parallel()
	one, other := newOptions(t), newOptions(t)
	other.Device = "MIG-4e0b6c2a-8d1f-4b7a-9c3e-0123456789ab"
	first, second := start(t, one), start(t, other)
	server, pid := serverOf(t, second), second.State().PID
	kill(t, first.State().PID)
	await(t, first, ControlDied)
	await(t, first, Restarted)
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	if s := second.State(); s.PID != pid || s.Starts != 1 || !alive(pid) || !alive(server) {
		t.Errorf("the other: %+v", s)
	}
}

// Stop does not wait for a daemon that is slow to come back, nor for a pause.
func TestStopWhileRestarting(t *testing.T) {
	t.Parallel()
	for name, behaviour := range map[string]string{"starting": "never", "pausing": "exit gone"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOptions(t)
			o.BackoffMax = time.Hour
			if name == "pausing" {
				o.BackoffMin = time.Hour
			}
			c := start(t, o)
			behave(t, o, behaviour)
			kill(t, c.State().PID)
			await(t, c, ControlDied)
			if name == "starting" {
				eventually(t, "the next daemon runs", func() bool { return len(leftovers(&directory{path: o.Directory})) > 0 })
			}
			if s := c.State(); s.Phase != PhaseRestarting || s.Err == nil {
				t.Errorf("state %+v", s)
			}
			if err := healthy(t.Context(), c); !errors.Is(err, ErrExited) {
				t.Error(err)
			}
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
