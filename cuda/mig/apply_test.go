package mig_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
)

func TestApplyAndRelease(t *testing.T) {
	f := open(t, fakegpu.H100)
	f.place(19, 6, 1)
	before := f.State()
	done := f.apply("3g.40gb", "2g.20gb")
	for _, s := range done.Slots {
		if s.State != mig.Keep || !s.Ours || !strings.HasPrefix(s.UUID, "MIG-") {
			t.Errorf("slot %+v", s)
		}
	}
	want := []string{
		"create instance 7 profile 19 at 6", "create compute 0 in 7", // the stranger's
		"create instance 1 profile 9 at 0", "create compute 0 in 1",
		"create instance 3 profile 14 at 4", "create compute 0 in 3",
	}
	if diff := cmp.Diff(want, f.Log()); diff != "" {
		t.Error(diff)
	}
	calls := len(f.Log())
	f.apply("3g.40gb", "2g.20gb")
	if len(f.Log()) != calls {
		t.Errorf("the second time changed something: %v", f.Log()[calls:])
	}
	if err := f.release(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, f.State()); diff != "" {
		t.Error(diff)
	}
	if !f.last().Empty() {
		t.Errorf("the record still has %+v", f.last())
	}
}

// TestBusyLeftover changes nothing while a process runs in what is to go.
func TestBusyLeftover(t *testing.T) {
	f := open(t, fakegpu.H100)
	done := f.apply("3g.40gb")
	if err := f.StartProcess(done.Slots[0].UUID, 31, 1); err != nil {
		t.Fatal(err)
	}
	state := f.State()
	l, err := f.plan("7g.80gb")
	if err != nil || l.Steps()[0] != "destroy GPU instance 1 (3g.40gb at 4:4), left by an earlier run" {
		t.Fatalf("%v, %v", err, l.Steps())
	}
	if _, record, err := mig.Apply(f.host, l, f.save); !errors.Is(err, mig.ErrBusy) || len(record.Entries) != 1 || f.State() != state {
		t.Errorf("%v, %+v\n%s", err, record, f.State())
	}
}

// TestStaleRecord forgets what somebody destroyed.
func TestStaleRecord(t *testing.T) {
	f := open(t, fakegpu.H100)
	f.apply("3g.40gb", "1g.10gb")
	f.Reset(0)
	before := f.State()
	done := f.apply("2g.20gb")
	if len(f.last().Entries) != 1 || f.last().Entries[0].UUID != done.Slots[0].UUID {
		t.Errorf("the record has %+v", f.last())
	}
	if err := f.release(); err != nil || f.State() != before {
		t.Errorf("%v\n%s", err, f.State())
	}
}

// TestSomebodyElseDivides takes the place between the plan and its work.
func TestSomebodyElseDivides(t *testing.T) {
	f := open(t, fakegpu.H100)
	l, err := f.plan("3g.40gb")
	if err != nil {
		t.Fatal(err)
	}
	f.place(19, 5, 1)
	done, _, err := mig.Apply(f.host, l, f.save)
	if err != nil || done.Slots[0].Placement.Start != 0 {
		t.Errorf("%v, %+v", err, done.Slots)
	}
	f.place(19, 4, 1)
	if _, err := f.plan("3g.40gb", "3g.40gb"); !errors.Is(err, mig.ErrNoFit) {
		t.Errorf("got %v", err)
	}
}

// TestPlaceGivenAgain has a stranger get our place and profile, with another ID.
func TestPlaceGivenAgain(t *testing.T) {
	f := open(t, fakegpu.H100)
	done := f.apply("2g.20gb")
	f.Reset(0)
	f.place(15, 0, 1) // takes the ID
	f.place(14, uint32(done.Slots[0].Placement.Start), 2)
	state := f.State()
	if err := f.release(); err != nil || f.State() != state || !f.last().Empty() {
		t.Errorf("%v, %+v\n%s", err, f.last(), f.State())
	}
}

// TestDestroyedMeanwhile takes it for success that somebody was faster.
func TestDestroyedMeanwhile(t *testing.T) {
	f := open(t, fakegpu.H100)
	before := f.State()
	f.apply("2g.20gb")
	f.FailAfter("nvmlComputeInstanceDestroy", 0, 1, nvml.ERROR_NOT_FOUND)
	f.FailAfter("nvmlGpuInstanceDestroy", 0, 1, nvml.ERROR_NOT_FOUND)
	if err := f.release(); err != nil || f.State() != before || !f.last().Empty() {
		t.Errorf("%v, %+v\n%s", err, f.last(), f.State())
	}
}

// TestReleaseUnprivileged keeps the record while it cannot see.
func TestReleaseUnprivileged(t *testing.T) {
	f := open(t, fakegpu.H100)
	f.apply("2g.20gb")
	f.Unprivileged = true
	if err := f.release(); !errors.Is(err, cuda.ErrPermission) || len(f.last().Entries) != 1 {
		t.Errorf("%v, %+v", err, f.last())
	}
}

// TestDestroyedAtTheEnd notices that what it made is gone before it was done.
func TestDestroyedAtTheEnd(t *testing.T) {
	f := open(t, fakegpu.H100)
	l, err := f.plan("2g.20gb")
	if err != nil {
		t.Fatal(err)
	}
	_, record, err := mig.Apply(f.host, l, func(r mig.Record) error {
		if len(r.Entries) == 1 && r.Entries[0].State == mig.Ready {
			f.Reset(0)
			f.SetMIG(0, true)
		}
		return nil
	})
	if !errors.Is(err, mig.ErrForeign) || !record.Empty() {
		t.Errorf("%v, %+v", err, record)
	}
}

// TestIDGivenAgain destroys our instance behind our back and has a stranger get
// its ID.
func TestIDGivenAgain(t *testing.T) {
	f := open(t, fakegpu.H100)
	done := f.apply("2g.20gb")
	id := done.Slots[0].Instance
	for _, err := range []error{f.host.DestroyComputeInstance(f.gpu(), id, 0), f.host.DestroyGPUInstance(f.gpu(), id)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	start := (uint32(done.Slots[0].Placement.Start) + 2) % 6
	f.place(14, start, 2)
	state := f.State()
	if err := f.release(); err != nil {
		t.Fatal(err)
	}
	if f.State() != state || !f.last().Empty() {
		t.Errorf("the stranger's instance was touched:\n%s", f.State())
	}
}

func TestReleaseLeavesWhatIsInUse(t *testing.T) {
	f := open(t, fakegpu.H100)
	before := f.State()
	done := f.apply("3g.40gb", "2g.20gb")
	if err := f.StartProcess(done.Slots[0].UUID, 4242, 1<<30); err != nil {
		t.Fatal(err)
	}
	err := f.release()
	if !errors.Is(err, mig.ErrBusy) || !strings.Contains(err.Error(), "4242") {
		t.Errorf("got %v", err)
	}
	if left := f.last().Entries; len(left) != 1 || left[0].Profile != "3g.40gb" {
		t.Errorf("the record has %+v", left)
	}
	f.StopProcess(4242)
	if err := f.release(); err != nil || f.State() != before {
		t.Errorf("%v\n%s", err, f.State())
	}
}

func TestReleaseLeavesStrangersInside(t *testing.T) {
	f := open(t, fakegpu.H100)
	done := f.apply("2g.20gb")
	id := done.Slots[0].Instance
	if err := f.host.DestroyComputeInstance(f.gpu(), id, 0); err != nil {
		t.Fatal(err)
	}
	gi, _ := f.Devices[0].GetGpuInstanceById(int(id))
	if _, code := gi.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE}); code != nvml.SUCCESS {
		t.Fatal(code)
	}
	if err := f.release(); !errors.Is(err, mig.ErrForeign) || !strings.Contains(err.Error(), "-dci") {
		t.Errorf("got %v", err)
	}
}

func TestRecordOfAnotherBoot(t *testing.T) {
	f := open(t, fakegpu.H100)
	f.apply("3g.40gb")
	state := f.State() // as a stranger might have made it after the reboot
	left, err := mig.Release(f.host, f.last(), "boot-2", f.save)
	if err != nil || !left.Empty() || f.State() != state {
		t.Errorf("%v, %+v\n%s", err, left, f.State())
	}
}

func TestRecordOfAnotherGPU(t *testing.T) {
	f := open(t, fakegpu.H100)
	f.apply("3g.40gb")
	r := f.last()
	r.GPU = "GPU-elsewhere"
	if _, err := mig.Plan(f.device(), wants("3g.40gb"), owner(r)); !errors.Is(err, mig.ErrRecord) {
		t.Errorf("got %v", err)
	}
}

func TestModeStaysForStrangers(t *testing.T) {
	f := open(t, fakegpu.H100)
	f.SetMIG(0, false)
	f.apply("3g.40gb")
	f.place(19, 0, 1)
	if err := f.release(); !errors.Is(err, mig.ErrForeign) {
		t.Errorf("got %v", err)
	}
	if d := f.device(); !d.MIG.Enabled || len(d.Instances) != 1 {
		t.Errorf("%+v", d.Instances)
	}
}

func TestModeThatNeedsReset(t *testing.T) {
	f := open(t, fakegpu.H100)
	f.SetMIG(0, false)
	f.Devices[0].NeedsReset = true
	before := f.State()
	l, err := f.plan("3g.40gb")
	if err != nil {
		t.Fatal(err)
	}
	_, record, err := mig.Apply(f.host, l, f.save)
	if !errors.Is(err, cuda.ErrReset) || !strings.Contains(err.Error(), "--gpu-reset") {
		t.Errorf("got %v", err)
	}
	if f.State() != before || !record.Empty() {
		t.Errorf("%+v\n%s", record, f.State())
	}
}

// scene is a random GPU with strangers on it, and what is wanted of it.
type scene struct {
	model    fakegpu.Model
	off      bool // MIG mode
	existing [][3]uint32
	profiles []string
}

func drawScene(t *rapid.T) scene {
	s := scene{model: rapid.SampledFrom(fakegpu.Models).Draw(t, "model"), off: rapid.IntRange(0, 5).Draw(t, "off") == 0}
	for range rapid.IntRange(0, 3).Draw(t, "strangers") {
		p := rapid.SampledFrom(s.model.Profiles).Draw(t, "stranger")
		s.existing = append(s.existing, [3]uint32{p.ID, rapid.SampledFrom(p.Starts).Draw(t, "start"), rapid.SampledFrom([]uint32{0, 1, p.Slices}).Draw(t, "compute")})
	}
	all := names(open(t, s.model).device())
	s.profiles = rapid.SliceOfN(rapid.SampledFrom(all), 1, 4).Draw(t, "wants")
	return s
}

// open builds a scene; strangers that do not fit stay away.
func (s scene) open(t failer) *fixture {
	f := open(t, s.model)
	if s.off {
		f.SetMIG(0, false)
		return f
	}
	for _, e := range s.existing {
		_ = f.Place(0, e[0], e[1], e[2])
	}
	return f
}

// containsLines reports whether all instances of a state are in another.
func containsLines(state, part string) bool {
	have := strings.Split(state, "\n")
	for _, line := range strings.Split(part, "\n") {
		if strings.HasPrefix(line, "  ") && !slices.Contains(have, line) {
			return false
		}
	}
	return true
}

// TestPlansApply holds every plan that is accepted to it: it can be applied,
// gives what was wanted, leaves strangers alone, and Release restores the host.
func TestPlansApply(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t)
		f := s.open(t)
		before := f.State()
		if _, err := f.plan(s.profiles...); err != nil {
			if !errors.Is(err, mig.ErrNoFit) {
				t.Fatal(err)
			}
			return
		}
		done := f.apply(s.profiles...)
		seen := map[string]bool{}
		for i, slot := range done.Slots {
			have := f.device().Instances
			at := slices.IndexFunc(have, func(in cuda.Instance) bool { return in.UUID == slot.UUID })
			if slot.UUID == "" || seen[slot.UUID] || at < 0 || have[at].Profile != s.profiles[i] {
				t.Fatalf("slot %d is %+v", i, slot)
			}
			seen[slot.UUID] = true
		}
		if !containsLines(f.State(), before) {
			t.Fatalf("strangers were touched:\n%s\n%s", before, f.State())
		}
		f.apply(s.profiles...)
		if err := f.release(); err != nil {
			t.Fatal(err)
		}
		if f.State() != before {
			t.Fatalf("before\n%safter\n%s", before, f.State())
		}
	})
}

// TestUndoThatFails keeps in the record what could not be undone.
func TestUndoThatFails(t *testing.T) {
	f := open(t, fakegpu.H100)
	before := f.State()
	l, err := f.plan("3g.40gb", "3g.40gb")
	if err != nil {
		t.Fatal(err)
	}
	f.Fail("nvmlGpuInstanceCreateComputeInstance", 1, 1, nvml.ERROR_INSUFFICIENT_RESOURCES)
	f.Fail("nvmlGpuInstanceDestroy", 0, -1, nvml.ERROR_IN_USE)
	_, record, err := mig.Apply(f.host, l, f.save)
	if !errors.Is(err, cuda.ErrResources) || !errors.Is(err, cuda.ErrInUse) || strings.Count(err.Error(), "undoing") != 2 {
		t.Errorf("got %v", err)
	}
	if len(record.Entries) != 2 {
		t.Fatalf("the record has %+v", record)
	}
	f.Mend()
	if _, err := mig.Release(f.host, record, boot, f.save); err != nil || f.State() != before {
		t.Errorf("%v\n%s", err, f.State())
	}
}

func TestSaveThatFails(t *testing.T) {
	full := errors.New("disk full")
	for n := range 7 {
		f := open(t, fakegpu.H100)
		before := f.State()
		l, err := f.plan("3g.40gb", "1g.10gb")
		if err != nil {
			t.Fatal(err)
		}
		saves := 0
		_, _, err = mig.Apply(f.host, l, func(mig.Record) error {
			if saves++; saves == n+1 {
				return full
			}
			return nil
		})
		if (n < 6) != errors.Is(err, full) {
			t.Errorf("save %d: %v", n, err)
		}
		if err != nil && f.State() != before {
			t.Errorf("save %d:\n%s", n, f.State())
		}
	}
}

func TestLostGPU(t *testing.T) {
	f := open(t, fakegpu.H100)
	f.apply("3g.40gb")
	f.Lose(0)
	if err := f.release(); !errors.Is(err, cuda.ErrLost) || len(f.last().Entries) != 1 {
		t.Errorf("got %v, %+v", err, f.last())
	}
}
