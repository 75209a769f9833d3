package ort

import (
	"errors"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
)

func TestSharedArena(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	const bytes = 1 << 20
	x, _ := floats(t, e, []int64{bytes / 4})
	for range 2 {
		s := newSession(t, e, add())
		before := e.ArenaBytes()
		results, err := s.Run([]*Value{x, x}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if more := e.ArenaBytes() - before; more != bytes {
			t.Errorf("a tensor of %d bytes takes %d of the arena", bytes, more)
		}
		_ = results[0].Close()
		if after := e.ArenaBytes(); after != before {
			t.Errorf("%d bytes were in use, now %d", before, after)
		}
	}
}

// TestArenaLimit has a run fail that would take too much, in one step and as a value
// of the caller's, and run once there is room.
func TestArenaLimit(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	const bytes = 1 << 22
	x, _ := floats(t, e, []int64{bytes / 4})
	s := newSession(t, e, add())
	p, err := NewProgram([]*Session{s})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, p)
	p.SetInput(0, 0, x)
	p.SetInput(0, 1, x)
	before := e.ArenaBytes()
	for range 3 {
		e.LimitArena(before + bytes - 1)
		if _, err := s.Run([]*Value{x, x}, nil); !errors.Is(err, ErrArenaFull) {
			t.Errorf("a session: %v", err)
		}
		if _, err := p.Run(0, 1, nil); !errors.Is(err, ErrArenaFull) || !strings.Contains(err.Error(), "4194304 bytes requested, 4194303 left") {
			t.Errorf("a program: %v", err)
		}
		if v, err := e.NewTensor(models.Float32, []int64{bytes / 4}); !errors.Is(err, ErrArenaFull) {
			t.Errorf("a value: %v, %v", v, err)
		}
		if after := e.ArenaBytes(); after != before {
			t.Errorf("%d bytes were in use, after refusals %d", before, after)
		}
		e.LimitArena(before + bytes)
		if _, err := p.Run(0, 1, nil); err != nil {
			t.Errorf("with room: %v", err)
		}
		p.Drop(0, 0)
		e.UnlimitArena()
	}
}

// What is refused one thread is never counted, so another does not see it.
func TestRefusedIsNotCounted(t *testing.T) {
	e := openEnv(t, EnvOptions{IntraThreads: 1})
	const small, large = 1 << 10, 1 << 30
	most := e.ArenaBytes() + 1<<20
	e.LimitArena(most)
	defer e.UnlimitArena()
	var peak int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20_000 {
			if _, err := e.NewTensor(models.Float32, []int64{large / 4}); !errors.Is(err, ErrArenaFull) {
				t.Errorf("a large one: %v", err)
				return
			}
		}
	}()
	for more := true; more; {
		select {
		case <-done:
			more = false
		default:
			v, err := e.NewTensor(models.Float32, []int64{small / 4})
			if err != nil {
				t.Errorf("a small one: %v", err)
				more = false
				break
			}
			peak = max(peak, e.ArenaBytes())
			_ = v.Close()
		}
	}
	<-done
	if peak > most {
		t.Errorf("%d bytes were in use, of which %d were given", peak, most)
	}
}
