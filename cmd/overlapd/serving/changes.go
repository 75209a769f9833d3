package serving

import (
	"slices"

	"github.com/overlapd/overlapd/daemon/config"
)

// change is one thing that a reload did, to a service or to a key (setting). A key
// may take effect after a restart only (later). Where it could not be done, fault
// gives the reason and instead what holds now.
type change struct {
	name, verb     string
	setting, later bool
	fault, instead string
}

// changeList returns what a reload did, services first. The command prints it and the daemon logs it,
// so that an operator finds the same words in both.
func changeList(r *config.Reloaded) (list []change) {
	for _, of := range []struct {
		verb, instead string
		names         []string
	}{
		{"added", "there is no service of that name", r.Added},
		{"replaced", "the old one keeps serving", r.Replaced},
		{"started again", "it remains failed", r.Retried},
		{"moved", "it serves on the other devices", r.Moved},
		{"changed", "it serves as before", r.Changed},
		{"removed", "it keeps serving", r.Removed},
	} {
		for _, name := range of.names {
			c := change{name: name, verb: of.verb, fault: r.Failed[name], instead: of.instead}
			if slices.Contains(r.Down, name) {
				c.instead = "nothing serves it, because the previous one failed permanently"
			}
			list = append(list, c)
		}
	}
	for _, key := range r.Settings {
		list = append(list, change{name: key, verb: "changed", setting: true})
	}
	for _, key := range r.Restart {
		list = append(list, change{name: key, verb: "changed", later: true})
	}
	return list
}
