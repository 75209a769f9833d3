package query

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// taken is a backend that takes every call.
type taken struct{ Backend }

func (taken) Submit(*Call) error { return nil }

// admitted returns a call with these inputs, as if it had been admitted.
func admitted(s *Service, data string) *Call {
	c := NewCall(s)
	c.Size = 1
	c.Inputs = append(c.Inputs, models.Tensor{Data: []byte(data)})
	return c
}

// Inputs that a worker died of are refused, others are not, and another model
// may take them.
func TestQuarantine(t *testing.T) {
	s := NewService(0, "s")
	s.Backend = taken{}
	load := func(hash string) {
		t.Helper()
		if err := s.Loaded(Info{Inputs: []models.TensorSpec{spec("x", models.Int8, -2)}, Hash: hash}); err != nil {
			t.Fatal(err)
		}
	}
	load("first")
	s.quarantine.add(admitted(s, "deadly").inputsHash(), time.Now())
	refused := func(data string) bool {
		err := s.submit(admitted(s, data))
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Status != 500 || e.Reason != ReasonQuarantined || !strings.Contains(e.Message, "10m0s")) {
			t.Errorf("%v", err)
		}
		return err != nil
	}
	if !refused("deadly") || refused("harmless") || refused("") {
		t.Error("the wrong inputs are refused")
	}
	other := s.Successor() // of other targets
	if err := other.Loaded(Info{Inputs: []models.TensorSpec{spec("x", models.Int8, -2)}, Hash: "first"}); err != nil {
		t.Fatal(err)
	}
	other.Backend = taken{}
	if err := other.submit(admitted(other, "deadly")); err == nil {
		t.Error("other targets make the inputs harmless")
	}
	load("first")
	if !refused("deadly") {
		t.Error("a worker that came back forgets why the last one died")
	}
	load("second")
	if refused("deadly") || s.quarantine.used.Load() {
		t.Error("another model has not been tried")
	}
}

// What is remembered is bounded, in number and in time.
func TestQuarantineIsBounded(t *testing.T) {
	var q quarantine
	now := time.Now()
	for i := range uint64(quarantineSize + 10) {
		q.add(i, now)
		q.add(i, now)
	}
	if n := len(q.mu.culprits); n != quarantineSize {
		t.Errorf("%d inputs are remembered", n)
	}
	if last := uint64(quarantineSize + 9); q.until(last, now).IsZero() || !q.until(0, now).IsZero() {
		t.Error("the wrong ones are forgotten")
	}
	if now = now.Add(quarantineTime); !q.until(quarantineSize, now).IsZero() || q.used.Load() {
		t.Error("they are never forgotten")
	}
}

// A hash is of all that is given to the model.
func TestInputsHash(t *testing.T) {
	s := NewService(0, "s")
	two := func(a, b string, size int, shape uint64) uint64 {
		c := admitted(s, a)
		c.Inputs = append(c.Inputs, models.Tensor{Data: []byte(b)})
		c.Size, c.Shape = size, shape
		return c.inputsHash()
	}
	seen := map[uint64]bool{}
	for _, h := range []uint64{two("ab", "c", 1, 0), two("a", "bc", 1, 0), two("ab", "c", 2, 0), two("ab", "c", 1, 1), admitted(s, "abc").inputsHash()} {
		seen[h] = true
	}
	if len(seen) != 5 || !seen[two("ab", "c", 1, 0)] {
		t.Errorf("%d different hashes", len(seen))
	}
}

// sleeper loads models by request only.
type sleeper struct{ Sleeper }

func (sleeper) OnDemand() bool { return false }

// One service that has no worker takes the readiness of none other.
func TestAnyReady(t *testing.T) {
	make := func(condition string) *Service {
		s := NewService(0, condition)
		if condition == "unloaded" {
			s.Asleep = sleeper{}
		}
		if condition != "loading" && condition != "refused" && condition != "unloaded" {
			if err := s.Loaded(Info{Inputs: []models.TensorSpec{spec("x", models.Int8, 1)}}); err != nil {
				t.Fatal(err)
			}
		}
		s.GivenUp.Store(condition == "given up" || condition == "refused")
		s.SetReady(condition == "ready")
		return s
	}
	for conditions, want := range map[string][2]bool{
		"":                   {false, false},
		"ready":              {true, true},
		"unloaded":           {true, true},
		"unloaded ready":     {true, true},
		"unloaded loading":   {false, false},
		"unloaded refused":   {false, false},
		"ready ready":        {true, true},
		"ready loading":      {false, false},
		"ready restarting":   {true, false},
		"ready given-up":     {true, false},
		"ready refused":      {true, false},
		"refused loading":    {false, false},
		"restarting refused": {false, false},
	} {
		var list []*Service
		for _, c := range strings.Fields(conditions) {
			list = append(list, make(strings.ReplaceAll(c, "-", " ")))
		}
		if one, all := AnyReady(list, false), AnyReady(list, true); one != want[0] || all != want[1] && len(list) > 0 {
			t.Errorf("%q: any %v, all %v", conditions, one, all)
		}
	}
}

// A service that was given up says so, and when it is tried again.
func TestGivenUpSaysWhen(t *testing.T) {
	s := NewService(0, "s")
	if e := s.NotReady(); e != ErrUnavailable {
		t.Errorf("%+v", e)
	}
	s.GivenUp.Store(true)
	for _, c := range []struct {
		at       time.Time
		earliest time.Duration
		says     string
	}{
		{time.Unix(0, 0), 0, "fix the cause, then run: overlapd restart s"},
		{time.Now().Add(time.Hour), 59 * time.Minute, "restarted in"},
		{time.Now().Add(-time.Hour), defaultRetryAfter, "being restarted now"},
	} {
		s.RetryAt.Store(c.at.UnixNano())
		e := s.NotReady()
		if e.Status != 503 || e.Reason != ReasonGivenUp || !strings.Contains(e.Message, c.says) || e.RetryAfter < c.earliest || c.earliest == 0 && e.RetryAfter != 0 {
			t.Errorf("%v: %+v", c.at, e)
		}
	}
}
