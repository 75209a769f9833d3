package mig_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
)

// failOnce applies a scene with its n-th call failing, before or after its
// work. It reports whether there were so many calls.
func failOnce(t failer, s scene, n int, after bool) bool {
	t.Helper()
	f := s.open(t)
	before := f.State()
	l, err := f.plan(s.profiles...)
	if err != nil {
		return false
	}
	fail := f.Fail
	if after {
		fail = f.FailAfter
	}
	fail("", n, 1, nvml.ERROR_UNKNOWN)
	calls := f.Calls()
	_, record, err := mig.Apply(f.host, l, f.save)
	calls = f.Calls() - calls
	f.Mend()
	if err == nil { // no call failed, or one whose answer is not needed
		if err := f.release(); err != nil {
			t.Fatal(err)
		}
	} else if !record.Empty() {
		t.Fatalf("call %d: %v: the record has %+v", n, err, record)
	}
	if f.State() != before {
		t.Fatalf("call %d failed (%v); before\n%safter\n%s", n, err, before, f.State())
	}
	return n < calls
}

// TestFailuresLeaveNothing fails every call of an Apply in turn.
func TestFailuresLeaveNothing(t *testing.T) {
	for _, s := range []scene{
		{model: fakegpu.H100, existing: [][3]uint32{{19, 0, 1}, {19, 1, 0}}, profiles: []string{"1g.10gb", "3g.40gb", "1g.10gb"}},
		{model: fakegpu.A100, off: true, profiles: []string{"2g.10gb", "1g.5gb+me"}},
	} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s after %t", s.model.Name, after), func(t *testing.T) {
				t.Parallel()
				n := 0
				for failOnce(t, s, n, after) {
					n++
				}
				if n < 50 {
					t.Errorf("only %d calls were tried", n)
				}
			})
		}
	}
}

// TestRandomFailures fails any call on any GPU.
func TestRandomFailures(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		failOnce(t, drawScene(t), rapid.IntRange(0, 400).Draw(t, "call"), rapid.Bool().Draw(t, "after"))
	})
}

// crash is what a test panics with to end a process.
type crash struct{}

// TestCrashesLeakNothing ends the process at every call of an Apply, and of a
// Release, and releases what the last record on disk says.
func TestCrashesLeakNothing(t *testing.T) {
	t.Parallel()
	for _, off := range []bool{false, true} {
		s := scene{model: fakegpu.H100, off: off, existing: [][3]uint32{{19, 0, 1}}, profiles: []string{"1g.10gb", "3g.40gb"}}
		all := func(f *fixture) func() {
			l, err := f.plan(s.profiles...)
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				if _, _, err := mig.Apply(f.host, l, f.save); err != nil {
					t.Fatal(err)
				}
				if err := f.release(); err != nil {
					t.Fatal(err)
				}
			}
		}
		f := s.open(t)
		for _, n := range crashPoints(t, f, all(f)) {
			f := s.open(t)
			before := f.State()
			if !crashAt(f, n, all(f)) {
				t.Fatalf("there is no call %d", n)
			}
			if err := f.release(); err != nil {
				t.Fatalf("call %d: %v", n, err)
			}
			if f.State() != before {
				t.Fatalf("call %d: before\n%safter\n%s", n, before, f.State())
			}
		}
	}
}

// crashPoints runs work and returns its calls before which something was changed or
// saved: to end at another leaves the host and the disk as to end at the one before.
func crashPoints(t *testing.T, f *fixture, work func()) (points []int) {
	calls, last := 0, ""
	f.OnCall = func(string) {
		if now := fmt.Sprint(f.State(), f.saved); now != last {
			points, last = append(points, calls), now
		}
		calls++
	}
	work()
	f.OnCall = nil
	if calls < 50 || len(points) < 6 {
		t.Errorf("%d calls, at %d of which it may as well end", calls, len(points))
	}
	return points
}

// crashAt runs work and ends it at its n-th call. It reports whether it came so
// far.
func crashAt(f *fixture, n int, work func()) (crashed bool) {
	defer func() {
		f.OnCall = nil
		if r := recover(); r == (any)(crash{}) {
			crashed = true
		} else if r != nil {
			panic(r)
		}
	}()
	f.OnCall = func(string) {
		if n == 0 {
			panic(crash{})
		}
		n--
	}
	work()
	return false
}

// TestApplyAfterCrash starts again, wanting the same, after a crash at every
// call.
func TestApplyAfterCrash(t *testing.T) {
	t.Parallel()
	apply := func(f *fixture) func() {
		l, err := f.plan("1g.10gb+me", "3g.40gb")
		if err != nil {
			t.Fatal(err)
		}
		return func() { _, _, _ = mig.Apply(f.host, l, f.save) }
	}
	f := open(t, fakegpu.H100)
	for _, n := range crashPoints(t, f, apply(f)) {
		f := open(t, fakegpu.H100)
		before := f.State()
		if !crashAt(f, n, apply(f)) {
			t.Fatalf("there is no call %d", n)
		}
		f.apply("1g.10gb+me", "3g.40gb")
		for _, e := range f.last().Entries {
			if e.State != mig.Ready {
				t.Fatalf("call %d: %+v", n, e)
			}
		}
		if got := strings.Count(f.State(), "instance"); got != 2 {
			t.Fatalf("call %d: %d instances\n%s", n, got, f.State())
		}
		if err := f.release(); err != nil || f.State() != before {
			t.Fatalf("call %d: %v\n%s", n, err, f.State())
		}
	}
}

// TestPlanOfUnknownMode: a GPU that does not tell its mode is not called one
// without MIG.
func TestPlanOfUnknownMode(t *testing.T) {
	s := fakegpu.New(fakegpu.H100)
	s.Fail("nvmlDeviceGetMigMode", 0, -1, nvml.ERROR_TIMEOUT)
	h, err := cuda.Open(s)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	f, err := h.Facts()
	if err != nil {
		t.Fatal(err)
	}
	_, err = mig.Plan(f.Devices[0], []mig.Want{{Profile: "3g.40gb"}}, mig.Options{})
	if errors.Is(err, mig.ErrIncapable) || !errors.Is(err, cuda.ErrDriver) || !strings.Contains(err.Error(), "is unknown: nvmlDeviceGetMigMode") {
		t.Errorf("got %v", err)
	}
}
