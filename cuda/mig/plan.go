package mig

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/cuda"
)

// Errors that planning, applying and releasing wrap.
var (
	// ErrWant is returned if the configuration asks for a profile that the GPU does not
	// have.
	ErrWant = errors.New("bad MIG instance in the configuration")
	// ErrIncapable is returned for a GPU without MIG.
	ErrIncapable = errors.New("GPU has no MIG")
	// ErrPending is returned while a change of the MIG mode waits for a reset.
	ErrPending = errors.New("a change of the MIG mode waits for a reset")
	// ErrMissing is returned if instances are missing and the daemon may not create
	// them.
	ErrMissing = errors.New("MIG instances are missing")
	// ErrNoFit is returned if the missing instances do not fit alongside the
	// existing ones.
	ErrNoFit = errors.New("MIG layout does not fit")
	// ErrBusy is returned if running processes prevent a change.
	ErrBusy = errors.New("processes are running")
	// ErrForeign is returned if instances that are not ours prevent a change.
	ErrForeign = errors.New("not made by overlapd")
	// ErrRecord is returned for an invalid record.
	ErrRecord = errors.New("bad MIG record")
)

// Options is what a plan depends on besides the facts.
type Options struct {
	// Owner allows the daemon to create and destroy instances.
	Owner bool
	// Record lists what earlier runs created.
	Record Record
	// Boot is the host's boot ID, as the function Boot returns it.
	Boot string
}

// Plan returns the steps from the current state of a device to the wanted instances. It
// keeps instances that fit, ours first. An owner does not use a foreign instance in which
// processes run. If the daemon is the owner, missing instances are created, at placements
// that an exhaustive search finds. Otherwise Plan returns ErrMissing with the commands that
// create them.
func Plan(d cuda.Device, wants []Want, o Options) (Layout, error) {
	l := Layout{Device: d, wants: wants, options: o}
	if err := ready(d, o); err != nil {
		return l, err
	}
	profiles, err := resolve(d, wants)
	if err != nil {
		return l, err
	}
	record, err := o.Record.on(d.UUID, o.Boot)
	if err != nil {
		return l, err
	}
	l.EnableMode = !d.MIG.Enabled
	l.match(record)
	var missing []need
	for i, s := range l.Slots {
		if s.State == Create {
			missing = append(missing, need{want: i, profile: profiles[i]})
		}
	}
	switch {
	case len(missing) == 0:
		return l, nil
	case !o.Owner:
		return l, l.missing(missing)
	}
	return l, l.create(missing)
}

// ready returns an error if the device cannot be divided now.
func ready(d cuda.Device, o Options) error {
	switch {
	case !d.MIG.Capable && d.MIG.Why != nil:
		return fmt.Errorf("whether %s has MIG is unknown: %w", d, d.MIG.Why)
	case !d.MIG.Capable:
		return fmt.Errorf("%w: %s; leave mig out of [[device]], or take an A100, H100, H200 or newer", ErrIncapable, d)
	case d.MIG.Pending:
		return fmt.Errorf("%w: on %s; stop what uses the GPU and run nvidia-smi --gpu-reset -i %d, or reboot (overlapd never resets a GPU)", ErrPending, d, d.Index)
	case o.Owner && !d.MIG.Listed:
		return fmt.Errorf("with owner = true in [mig] overlapd must see and make instances of %s: %w", d, unlisted(d))
	case o.Owner && !d.MIG.Enabled && len(d.Processes.Value) > 0:
		return fmt.Errorf("%w: MIG mode of %s can be enabled only while nothing uses it, and %s do; stop them", ErrBusy, d, pids(d.Processes.Value))
	}
	return nil
}

// unlisted returns why the instances of a device are not listed.
func unlisted(d cuda.Device) error { return cmp.Or(d.MIG.Why, error(cuda.ErrUnsupported)) }

func pids(processes []cuda.Process) string {
	const shown = 8
	var all []string
	for _, p := range processes[:min(shown, len(processes))] {
		all = append(all, fmt.Sprint(p.PID))
	}
	if len(processes) > shown {
		all = append(all, "…")
	}
	return "processes " + strings.Join(all, ", ")
}

// match assigns existing instances to the wants. Instances of ours that are not kept are to
// be removed.
func (l *Layout) match(record Record) {
	l.Slots = make([]slot, len(l.wants))
	for i, w := range l.wants {
		l.Slots[i] = slot{Want: w, State: Create}
	}
	ours := map[uint32]bool{}
	for _, e := range record.Entries {
		have := e.find(l.Device)
		if have == nil || !l.options.Owner {
			continue
		}
		if e.stranger(have) >= 0 {
			continue // somebody else divided it further, so it is theirs now
		}
		ours[have.ID] = true
		if have.UUID == "" || e.State != Ready || !l.keep(*have, true) {
			l.Remove = append(l.Remove, e)
		}
	}
	strangers := slices.DeleteFunc(slices.Clone(l.Device.Instances), func(have cuda.Instance) bool { return ours[have.ID] })
	slices.SortStableFunc(strangers, func(a, b cuda.Instance) int { // idle ones first
		return min(1, len(a.Processes())) - min(1, len(b.Processes()))
	})
	for _, have := range strangers {
		if !l.keep(have, false) {
			l.Others = append(l.Others, have)
		}
	}
}

// keep assigns an instance to the first slot that wants its profile, and reports whether
// there is one.
func (l *Layout) keep(have cuda.Instance, ours bool) bool {
	if have.UUID == "" || !ours && l.options.Owner && len(have.Processes()) > 0 {
		return false
	}
	for i := range l.Slots {
		s := &l.Slots[i]
		if s.State == Create && s.Profile == have.Profile {
			s.State, s.Ours, s.Instance, s.UUID, s.Placement = Keep, ours, have.ID, have.UUID, have.Placement
			return true
		}
	}
	return false
}

// create finds placements for the missing instances.
func (l *Layout) create(missing []need) error {
	placed, ok := place(missing, l.taken())
	if over := l.overCount(missing); !ok || over != "" {
		return l.noFit(missing, over)
	}
	for _, n := range placed {
		l.Slots[n.want].Placement = n.at
	}
	return nil
}

// taken returns the placements of instances that stay.
func (l *Layout) taken() (all []cuda.Placement) {
	for _, o := range l.Others {
		all = append(all, o.Placement)
	}
	for _, s := range l.Slots {
		if s.State == Keep {
			all = append(all, s.Placement)
		}
	}
	return all
}

// overCount returns a description of a profile of which too many are wanted, or "". Some
// engines exist only once, so a profile may have a lower limit than the slices allow.
func (l *Layout) overCount(missing []need) string {
	for _, n := range missing {
		p := n.profile
		asked, have := 0, 0
		for _, m := range missing {
			if m.profile.Name == p.Name {
				asked++
			}
		}
		for _, i := range l.Device.Instances {
			if i.Profile == p.Name && !slices.ContainsFunc(l.Remove, func(e entry) bool { return e.find(l.Device).ID == i.ID }) {
				have++
			}
		}
		if asked+have > p.Max {
			return fmt.Sprintf("%d × %s are there and %d more are asked for, and the GPU has %d at most", have, p.Name, asked, p.Max)
		}
		if len(l.Remove) == 0 && p.Room >= 0 && asked > p.Room {
			return fmt.Sprintf("%d × %s are asked for, and the driver says that there is room for %d", asked, p.Name, p.Room)
		}
	}
	return ""
}

// noFit returns an error that names what is missing, what is free, and who uses the rest.
func (l *Layout) noFit(missing []need, over string) error {
	var asked []string
	memory, compute := 0, 0
	for _, n := range missing {
		asked = append(asked, n.profile.Name)
		compute += n.profile.Slices
		if len(n.profile.Placements) > 0 {
			memory += n.profile.Placements[0].Size
		}
	}
	bar := l.bar()
	return fmt.Errorf("%w on %s: missing are %s, which take %d memory slices and %d compute slices, and %d of %d memory slices are free, %s (. is free, # not ours); %s; ask for smaller profiles, or remove instances (nvidia-smi mig -lgi lists them)",
		ErrNoFit, l.Device, strings.Join(asked, ", "), memory, compute, strings.Count(bar, "."), l.Device.MIG.Slices, bar, cmp.Or(over, "no placement holds them"))
}

// Want is an instance that the configuration declares. Profile is a name such as "3g.40gb"
// or "1g.10gb+me". Services are the names of the services that use it, for messages.
type Want struct {
	Profile  string
	Services []string
}

// profileForm matches nvidia-smi's names of GPU instance profiles.
var profileForm = regexp.MustCompile(`^[1-9][0-9]?g\.[1-9][0-9]{0,3}gb([+-](me|gfx|me\.all))?$`)

// CheckProfile returns an error if the name of a profile is malformed for every GPU.
func CheckProfile(name string) error {
	if profileForm.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%w: profile %q is not of the form 3g.40gb or 1g.10gb+me; nvidia-smi mig -lgip lists them", ErrWant, name)
}

// resolve returns the profile of each want.
func resolve(d cuda.Device, wants []Want) (all []cuda.Profile, err error) {
	for _, w := range wants {
		p, ok := d.MIG.Profile(w.Profile)
		if !ok {
			var names []string
			for _, p := range d.MIG.Profiles {
				names = append(names, p.Name)
			}
			return nil, fmt.Errorf("%w: %s has no profile %s; it has %s", ErrWant, d, w.Profile, cmp.Or(strings.Join(names, ", "), "none"))
		}
		all = append(all, p)
	}
	return all, nil
}

// need is a missing instance: the index of its want, and the placement once it is found.
type need struct {
	want    int
	profile cuda.Profile
	at      cuda.Placement
}

// searcher searches placements exhaustively, for the largest instances first. A GPU has few
// slices and profiles, so the search is short.
type searcher struct {
	needs []need
	taken []cuda.Placement
}

// place finds a placement for every need that does not overlap those taken, and reports
// whether it succeeded. It tries high positions first. Small instances then leave the first
// half free, the only place for the largest ones. Needs with the same profile are placed in
// the order in which they are wanted.
func place(needs []need, taken []cuda.Placement) ([]need, bool) {
	s := searcher{needs: slices.Clone(needs), taken: slices.Clone(taken)}
	slices.SortFunc(s.needs, func(a, b need) int {
		return cmp.Or(b.profile.Slices-a.profile.Slices, cmp.Compare(b.profile.Memory, a.profile.Memory),
			cmp.Compare(a.profile.Name, b.profile.Name), b.want-a.want)
	})
	found := s.from(0)
	slices.SortFunc(s.needs, func(a, b need) int { return a.want - b.want })
	return s.needs, found
}

// from places the i-th need and all after it. Needs with the same profile are
// interchangeable, so each is placed before the previous one of its kind; every set of
// placements is thus tried only once.
func (s *searcher) from(i int) bool {
	if i == len(s.needs) {
		return true
	}
	n := &s.needs[i]
	for _, at := range slices.Backward(n.profile.Placements) {
		if i > 0 && s.needs[i-1].profile.Name == n.profile.Name && at.Start >= s.needs[i-1].at.Start {
			continue
		}
		if slices.ContainsFunc(s.taken, at.Overlaps) {
			continue
		}
		n.at = at
		s.taken = append(s.taken, at)
		if s.from(i + 1) {
			return true
		}
		s.taken = s.taken[:len(s.taken)-1]
	}
	return false
}
