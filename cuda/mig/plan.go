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

// What errors of planning, applying and releasing wrap.
var (
	// ErrWant is returned when the configuration asks for what no GPU has.
	ErrWant = errors.New("bad MIG instance in the configuration")
	// ErrIncapable is returned for a GPU without MIG.
	ErrIncapable = errors.New("GPU has no MIG")
	// ErrPending is returned while a change of the MIG mode waits for a reset.
	ErrPending = errors.New("a change of the MIG mode waits for a reset")
	// ErrMissing is returned when instances are missing and the daemon may not
	// create them.
	ErrMissing = errors.New("MIG instances are missing")
	// ErrNoFit is returned when no placement holds what is wanted beside what is
	// there.
	ErrNoFit = errors.New("MIG layout does not fit")
	// ErrBusy is returned when processes run where something is to be changed.
	ErrBusy = errors.New("processes are running")
	// ErrForeign is returned when something that is not ours is in the way.
	ErrForeign = errors.New("not made by overlapd")
	// ErrRecord is returned for a record that cannot be read.
	ErrRecord = errors.New("bad MIG record")
)

// Options are what a plan depends on besides the facts.
type Options struct {
	// Owner allows the daemon to create and destroy instances.
	Owner bool
	// Record is what earlier runs made.
	Record Record
	// Boot is the host's, as the function Boot returns it.
	Boot string
}

// Plan returns the way from a device as it is to what is wanted. Instances that
// fit are kept, ours first; the owner does not take one in which a stranger's
// processes run. What is missing is created if the daemon is the owner, at
// places found by trying all; else the error is an ErrMissing with the commands
// that create it.
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

// ready returns why a device cannot be divided now.
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

// match keeps the instances that fit. What is ours and not kept is in the way.
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
			continue // somebody divided it further: leave it to them
		}
		ours[have.ID] = true
		if have.UUID == "" || e.State != Ready || !l.keep(*have, true) {
			l.Remove = append(l.Remove, e)
		}
	}
	strangers := slices.DeleteFunc(slices.Clone(l.Device.Instances), func(have cuda.Instance) bool { return ours[have.ID] })
	slices.SortStableFunc(strangers, func(a, b cuda.Instance) int { // the idle ones first
		return min(1, len(a.Processes())) - min(1, len(b.Processes()))
	})
	for _, have := range strangers {
		if !l.keep(have, false) {
			l.Others = append(l.Others, have)
		}
	}
}

// keep gives an instance to the first slot that wants it. It reports whether
// one does.
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

// taken returns where instances lie that stay.
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

// overCount names the profile that there would be too many of: some engines exist
// once, whatever the slices.
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

// noFit returns an error with what is asked for, what is free, and who has the rest.
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

// Want is an instance that the configuration declares: a profile such as "3g.40gb" or
// "1g.10gb+me", and the names of the services that live in it, for messages.
type Want struct {
	Profile  string
	Services []string
}

// profileForm is what nvidia-smi names a GPU instance profile.
var profileForm = regexp.MustCompile(`^[1-9][0-9]?g\.[1-9][0-9]{0,3}gb([+-](me|gfx|me\.all))?$`)

// CheckProfile returns what is wrong with the name of a profile, whatever the GPU.
func CheckProfile(name string) error {
	if profileForm.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%w: profile %q is not of the form 3g.40gb or 1g.10gb+me; nvidia-smi mig -lgip lists them", ErrWant, name)
}

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

type need struct {
	want    int // whose
	profile cuda.Profile
	at      cuda.Placement
}

// searcher tries placements, the largest instances first.
type searcher struct {
	needs []need
	taken []cuda.Placement
}

// place finds a place for every need beside what is taken, trying all. Starts
// are tried from the last: small instances then leave the first half free,
// where alone the largest can lie. Needs of one profile have their places in the order
// in which they are wanted. It reports whether there is a place for all.
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

// from places the needs from the i-th on. Needs of one profile are alike, so
// each lies before the last of its kind: that tries every set once.
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
