package mig

import (
	"fmt"
	"strings"
)

// missing says how the administrator creates what is missing. Places are named
// where the driver tells them, so that the commands do what a plan would.
func (l *Layout) missing(needs []need) error {
	var names []string
	for _, n := range needs {
		names = append(names, n.profile.Name)
	}
	return fmt.Errorf("%w on %s: %s; create them as root with\n%s\nor let overlapd do it with owner = true in [mig]",
		ErrMissing, l.Device, strings.Join(names, ", "), strings.Join(l.commands(needs), "\n"))
}

func (l *Layout) commands(needs []need) (lines []string) {
	index := l.Device.Index
	if l.EnableMode {
		lines = append(lines, fmt.Sprintf("  nvidia-smi -i %d -mig 1", index))
	}
	var tuples []string
	placed, ok, err := place(needs, l.taken())
	for i, n := range needs {
		if ok && err == nil && l.Device.MIG.Listed {
			tuples = append(tuples, fmt.Sprintf("%d:%d", n.profile.ID, placed[i].at.Start))
		} else {
			tuples = append(tuples, fmt.Sprint(n.profile.ID))
		}
	}
	return append(lines, fmt.Sprintf("  nvidia-smi mig -i %d -cgi %s -C", index, strings.Join(tuples, ",")))
}
