// Package hostcheck finds what keeps a host with NVIDIA GPUs from running a configuration, and
// what to do about it.
//
// All that it knows is a table of rules. [Check] goes through it from top to bottom, so that a
// rule may rely on those above it: nothing is said of libraries where there is no driver. A
// finding is a rule that holds; docs/gpu-errors.md lists the rules for readers.
package hostcheck

import "context"

// Check looks at the host. It changes nothing, and waits for nothing but MPS and Try.
func Check(ctx context.Context, o Options) Report {
	h := &host{Options: o, ctx: ctx}
	h.open()
	for _, s := range sections {
		if s.applies != nil && !s.applies(h) {
			continue
		}
		subjects := []about{of(nil)} // the host as a whole
		if s.each != nil {
			subjects = s.each(h)
		}
		for _, a := range subjects {
			for _, r := range s.rules {
				if !r.holds(h, &a) {
					continue
				}
				h.report(r, &a)
				if !s.all {
					break
				}
			}
		}
	}
	return h.Report
}
