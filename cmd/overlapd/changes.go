package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
)

// change is one thing that a reload did, or could not do.
type change struct {
	name    string // of a service or a key
	verb    string // "added", "removed", "replaced" or "changed"
	setting bool   // it is a key
	later   bool   // it is a key that takes effect after a restart
	fault   string // why it could not be done
	instead string // what holds then
}

// changeList returns what a reload did, services first.
func changeList(r *config.Reloaded) (list []change) {
	for _, of := range []struct {
		verb, instead string
		names         []string
	}{
		{"added", "there is none of that name", r.Added},
		{"replaced", "the old one serves on", r.Replaced},
		{"changed", "it serves as before", r.Changed},
		{"removed", "it serves on", r.Removed},
	} {
		for _, name := range of.names {
			list = append(list, change{name: name, verb: of.verb, fault: r.Failed[name], instead: of.instead})
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

// writeChanges prints what a reload did: a line for each change and one at the
// end.
func writeChanges(w io.Writer, r *config.Reloaded) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range changeList(r) {
		switch {
		case c.fault != "":
			fmt.Fprintf(t, "FAILED\t%s\tnot %s: %s; %s\n", c.name, c.verb, c.fault, c.instead)
		case c.later:
			fmt.Fprintf(t, "later\t%s\ttakes effect after a restart\n", c.name)
		default:
			fmt.Fprintf(t, "%s\t%s\t\n", c.verb, c.name)
		}
	}
	if r.None() {
		fmt.Fprintln(t, "nothing has changed")
	}
	fmt.Fprintf(t, "took %v\n", r.Took.Round(time.Millisecond))
	return t.Flush()
}

// failedServices returns the services that could not be loaded, in order.
func failedServices(r *config.Reloaded) []string {
	var names []string
	for name := range r.Failed {
		names = append(names, name)
	}
	slices.SortFunc(names, cmp.Compare)
	return names
}
