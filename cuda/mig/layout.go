package mig

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/overlapd/overlapd/cuda"
)

// The states of a slot, which say what Apply does about a wanted instance.
const (
	Keep   = "keep"
	Create = "create"
)

// slot is a wanted instance and what happens to it. State is Keep or Create.
type slot struct {
	Want
	State string
	// Ours is set if the instance is in the record.
	Ours bool
	// Instance, and the UUID of the MIG device, are known if the instance is kept.
	Instance uint32
	UUID     string
	// Placement is zero if the instance is kept and the driver does not list
	// placements.
	Placement cuda.Placement
}

// Layout is a plan for one GPU.
type Layout struct {
	Device cuda.Device
	// EnableMode is set if the MIG mode must be turned on first.
	EnableMode bool
	// Remove lists instances of ours that are no longer wanted or were never finished.
	// Others lists instances that are neither ours nor used.
	Remove []entry
	Others []cuda.Instance
	// Slots has one entry for each Want, in order.
	Slots []slot

	wants   []Want
	options Options
}

// Steps describes what Apply will do, in order.
func (l Layout) Steps() (steps []string) {
	for _, e := range l.Remove {
		steps = append(steps, fmt.Sprintf("destroy %s, left by an earlier run", e))
	}
	if l.EnableMode {
		steps = append(steps, "enable MIG mode")
	}
	for _, s := range l.Slots {
		if s.State == Create {
			steps = append(steps, fmt.Sprintf("create GPU instance %s at %s", s.Profile, s.Placement),
				"create the compute instance that covers it")
		}
	}
	return steps
}

// String returns the layout as a table, with a bar of the memory slices and the steps that
// lead to it.
func (l Layout) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nmemory slices [%s]\n", l.Device, l.bar())
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i, s := range l.Slots {
		origin := s.UUID
		if s.State == Create {
			origin = "new"
		}
		fmt.Fprintf(t, "%c\t%s\t%s\t%s\t%s\t%s\n", letter(i), s.Profile, where(s.Placement), s.State, origin, strings.Join(s.Services, ", "))
	}
	for _, o := range l.Others {
		fmt.Fprintf(t, "#\t%s\t%s\tleave\tGPU instance %d\tnot ours\n", o.Profile, where(o.Placement), o.ID)
	}
	t.Flush()
	for i, step := range l.Steps() {
		fmt.Fprintf(&b, "%d. %s\n", i+1, step)
	}
	return b.String()
}

func where(p cuda.Placement) string {
	if p.Size == 0 {
		return "?"
	}
	return p.String()
}

func letter(i int) byte { return 'A' + byte(i%26) }

// bar draws the memory slices: the letter of a slot, # for an instance that is not ours,
// and . for a free slice.
func (l Layout) bar() string {
	bar := []byte(strings.Repeat(".", l.Device.MIG.Slices))
	draw := func(p cuda.Placement, c byte) {
		for i := p.Start; i < min(p.Start+p.Size, len(bar)); i++ {
			bar[i] = c
		}
	}
	for _, o := range l.Others {
		draw(o.Placement, '#')
	}
	for i, s := range l.Slots {
		draw(s.Placement, letter(i))
	}
	return string(bar)
}

// missing returns an error with the commands that create the missing instances. If the
// driver lists placements, the commands name them, so that the result is what a plan
// would give.
func (l *Layout) missing(needs []need) error {
	placed, ok := place(needs, l.taken())
	var names, tuples []string
	for i, n := range needs {
		tuple := fmt.Sprint(n.profile.ID)
		if ok && l.Device.MIG.Listed {
			tuple += fmt.Sprint(":", placed[i].at.Start)
		}
		names, tuples = append(names, n.profile.Name), append(tuples, tuple)
	}
	index, mode := l.Device.Index, ""
	if l.EnableMode {
		mode = fmt.Sprintf("  nvidia-smi -i %d -mig 1\n", index)
	}
	return fmt.Errorf("%w on %s: %s; create them as root with\n%s  nvidia-smi mig -i %d -cgi %s -C\nor let overlapd do it with owner = true in [mig]",
		ErrMissing, l.Device, strings.Join(names, ", "), mode, index, strings.Join(tuples, ","))
}
