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

func TestLayoutString(t *testing.T) {
	f := open(t, fakegpu.H100)
	f.place(19, 6, 1)
	f.place(14, 0, 2)
	l, err := mig.Plan(f.device(), []mig.Want{
		{Profile: "1g.20gb", Services: []string{"bert"}}, {Profile: "2g.20gb", Services: []string{"resnet50", "vgg19"}},
	}, owner(mig.Record{}))
	if err != nil {
		t.Fatal(err)
	}
	want := `GPU 0 (NVIDIA H100 80GB HBM3, ` + f.gpu() + `)
memory slices [BB..AA#.]
A  1g.20gb  4:2  create  new                                       bert
B  2g.20gb  0:2  keep    ` + l.Slots[1].UUID + `  resnet50, vgg19
#  1g.10gb  6:1  leave   GPU instance 7                            not ours
1. create GPU instance 1g.20gb at 4:2
2. create the compute instance that covers it
`
	if diff := cmp.Diff(want, l.String()); diff != "" {
		t.Error(diff)
	}
}

func TestStepsWithMode(t *testing.T) {
	f := open(t, fakegpu.A100)
	f.SetMIG(0, false)
	l, err := f.plan("7g.40gb")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"enable MIG mode", "create GPU instance 7g.40gb at 0:8", "create the compute instance that covers it"}
	if diff := cmp.Diff(want, l.Steps()); diff != "" {
		t.Error(diff)
	}
}

func TestPlanRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		model   fakegpu.Model
		change  func(*fixture)
		guest   bool // not the owner
		wants   []string
		is      error
		phrases []string
	}{
		"no fit": {model: fakegpu.H100, wants: []string{"3g.40gb", "3g.40gb", "1g.10gb"}, is: mig.ErrNoFit,
			phrases: []string{"3g.40gb, 3g.40gb, 1g.10gb", "9 memory slices", "7 compute slices", "8 of 8", "no placement", "nvidia-smi mig -lgi"}},
		"no fit beside strangers": {model: fakegpu.H100, change: func(f *fixture) { f.place(19, 2, 1); f.place(19, 5, 0) }, wants: []string{"3g.40gb"}, is: mig.ErrNoFit,
			phrases: []string{"..#..#..", "6 of 8"}},
		"too many with media": {model: fakegpu.A100, wants: []string{"1g.5gb+me", "1g.5gb+me"}, is: mig.ErrNoFit,
			phrases: []string{"1 at most"}},
		"less room than places": {model: fakegpu.H100, change: func(f *fixture) {
			f.Devices[0].GetGpuInstanceRemainingCapacityFunc = func(*nvml.GpuInstanceProfileInfo) (int, nvml.Return) { return 1, nvml.SUCCESS }
		}, wants: []string{"1g.10gb", "1g.10gb"}, is: mig.ErrNoFit, phrases: []string{"the driver says that there is room for 1"}},
		"unknown profile": {model: fakegpu.A100, wants: []string{"3g.40gb"}, is: mig.ErrWant,
			phrases: []string{"no profile 3g.40gb", "1g.5gb, 1g.5gb+me, 1g.10gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb"}},
		"no profile": {model: fakegpu.A100, wants: []string{"half"}, is: mig.ErrWant, phrases: []string{"no profile half"}},
		"no MIG": {model: fakegpu.A100, change: func(f *fixture) { f.Devices[0].NoMIG = true }, wants: []string{"1g.5gb"}, is: mig.ErrIncapable,
			phrases: []string{"[[device]]"}},
		"missing": {model: fakegpu.H100, guest: true, change: func(f *fixture) { f.place(19, 6, 1) }, wants: []string{"3g.40gb", "1g.10gb", "2g.20gb"}, is: mig.ErrMissing,
			phrases: []string{"3g.40gb, 2g.20gb;", "  nvidia-smi mig -i 0 -cgi 9:0,14:4 -C\n", "owner = true"}},
		"missing, mode off": {model: fakegpu.H100, guest: true, change: func(f *fixture) { f.SetMIG(0, false) }, wants: []string{"3g.40gb"}, is: mig.ErrMissing,
			phrases: []string{"  nvidia-smi -i 0 -mig 1\n  nvidia-smi mig -i 0 -cgi 9:4 -C"}},
		"missing, unprivileged": {model: fakegpu.H100, guest: true, change: func(f *fixture) { f.Unprivileged = true }, wants: []string{"3g.40gb"}, is: mig.ErrMissing,
			phrases: []string{"-cgi 9 -C"}},
		"owner, unprivileged": {model: fakegpu.H100, change: func(f *fixture) { f.Unprivileged = true }, wants: []string{"3g.40gb"}, is: cuda.ErrPermission,
			phrases: []string{"owner = true", "run overlapd as root"}},
		"pending": {model: fakegpu.H100, change: func(f *fixture) {
			f.Devices[0].NeedsReset = true
			f.Devices[0].SetMigMode(0)
		}, wants: []string{"3g.40gb"}, is: mig.ErrPending, phrases: []string{"--gpu-reset -i 0", "never resets"}},
		"mode off, busy": {model: fakegpu.H100, change: func(f *fixture) {
			f.SetMIG(0, false)
			if err := f.StartProcess(f.gpu(), 77, 1); err != nil {
				f.Fatal(err)
			}
		}, wants: []string{"3g.40gb"}, is: mig.ErrBusy, phrases: []string{"77"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, c.model)
			if c.change != nil {
				c.change(f)
			}
			_, err := mig.Plan(f.device(), wants(c.wants...), mig.Options{Owner: !c.guest, Boot: boot})
			if !errors.Is(err, c.is) {
				t.Fatalf("got %v", err)
			}
			for _, phrase := range c.phrases {
				if !strings.Contains(err.Error(), phrase) {
					t.Errorf("%q is not in: %v", phrase, err)
				}
			}
		})
	}
}

// TestGuestUsesWhatIsThere needs neither privileges nor ownership.
func TestGuestUsesWhatIsThere(t *testing.T) {
	for _, unprivileged := range []bool{false, true} {
		f := open(t, fakegpu.H100)
		f.place(9, 4, 3)
		f.place(20, 0, 1)
		f.place(15, 2, 1)
		f.Unprivileged = unprivileged
		l, err := mig.Plan(f.device(), wants("1g.20gb", "3g.40gb", "1g.10gb+me"), mig.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range l.Slots {
			if s.State != mig.Keep || s.Ours || s.UUID == "" {
				t.Errorf("%+v", s)
			}
		}
		before := len(f.Log())
		if _, _, err := mig.Apply(f.host, l, f.save); err != nil || len(f.Log()) != before || len(f.saved) != 0 {
			t.Errorf("%v, %v, %v", err, f.Log(), f.saved)
		}
	}
}

// TestOwnerLeavesBusyStrangers makes an instance of its own rather than share.
func TestOwnerLeavesBusyStrangers(t *testing.T) {
	f := open(t, fakegpu.H100)
	f.place(14, 4, 2)
	busy := f.device().Instances[0].UUID
	if err := f.StartProcess(busy, 7, 1); err != nil {
		t.Fatal(err)
	}
	if l, err := f.plan("2g.20gb"); err != nil || l.Slots[0].State != mig.Create {
		t.Errorf("%v, %+v", err, l.Slots)
	}
	f.StopProcess(7)
	if l, err := f.plan("2g.20gb"); err != nil || l.Slots[0].UUID != busy {
		t.Errorf("%v, %+v", err, l.Slots)
	}
}

// TestDividedInstancesAreNotUsed leaves instances alone that have no compute
// instance, or a smaller one.
func TestDividedInstancesAreNotUsed(t *testing.T) {
	f := open(t, fakegpu.H100)
	f.place(14, 4, 1)
	f.place(14, 2, 0)
	l, err := f.plan("2g.20gb")
	if err != nil || l.Slots[0].State != mig.Create || len(l.Others) != 2 {
		t.Errorf("%v, %+v", err, l)
	}
}

// TestPlanRefusesOnlyWhatDoesNotFit compares with all assignments there are.
func TestPlanRefusesOnlyWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	fits, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		all++
		s := drawScene(t)
		f := s.open(t)
		_, err := f.plan(s.profiles...)
		want := bruteForce(f.device(), s.profiles)
		if want != (err == nil) {
			t.Fatalf("%v on\n%s fits: %t, but Plan says %v", s.profiles, f.State(), want, err)
		}
		if want {
			fits++
		}
	})
	if fits < all/5 {
		t.Errorf("only %d of %d layouts fitted", fits, all)
	}
}

// bruteForce reports whether some assignment gives every want an instance that
// is there and whole, or a free place.
func bruteForce(d cuda.Device, profiles []string) bool {
	var taken []cuda.Placement
	counts := map[string]int{}
	usable := map[uint32]bool{}
	for _, have := range d.Instances {
		taken = append(taken, have.Placement)
		counts[have.Profile]++
		usable[have.ID] = have.UUID != ""
	}
	var try func(i int) bool
	try = func(i int) bool {
		if i == len(profiles) {
			return true
		}
		for _, have := range d.Instances {
			if usable[have.ID] && have.Profile == profiles[i] {
				usable[have.ID] = false
				ok := try(i + 1)
				usable[have.ID] = true
				if ok {
					return true
				}
			}
		}
		p, _ := d.MIG.Profile(profiles[i])
		if counts[p.Name] >= p.Max {
			return false
		}
		for _, at := range p.Placements {
			if slices.ContainsFunc(taken, at.Overlaps) {
				continue
			}
			taken = append(taken, at)
			counts[p.Name]++
			ok := try(i + 1)
			counts[p.Name]--
			taken = taken[:len(taken)-1]
			if ok {
				return true
			}
		}
		return false
	}
	return try(0)
}
