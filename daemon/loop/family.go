package loop

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/planning/selection"
	"github.com/overlapd/overlapd/segments/wire"
)

// family is a service with variants. To clients it is one service, its front; to the services
// each variant is a service of its own.
type family struct {
	front    *query.Service
	inputs   *wire.InputArena
	users    int        // services that have the inputs
	variants []*service // that serve or, if none does, that did last, in the order of their IDs

	probation probation

	live    selection.Live
	file    string // of policies, "" to have them calculated
	refused error  // why there are none
	solving bool
	solved  time.Duration // when it last began, 0 for never with these variants and this file
}

// serves reports whether requests find the family.
func (f *family) serves() bool {
	return slices.ContainsFunc(f.variants, func(m *service) bool { return m.state == stateServing })
}

// gather updates the variants and the front of a family. Once no variant serves, those that
// did last still answer the requests that hold the front.
func (f *family) gather(served []*service) {
	var now []*service
	for _, m := range served {
		if m.family == f {
			now = append(now, m)
		}
	}
	if len(now) == 0 {
		return
	}
	before := f.variants
	f.variants = now
	if file := f.variants[0].config.Selection; file != "" || file != f.file || !slices.Equal(before, f.variants) {
		f.file, f.solved = file, 0 // a reload may have found the file rewritten
	}
	f.front.Retired.Store(false)
	first := f.variants[0].entry
	next := f.front.Successor()
	next.Version = first.Version
	next.ID, next.QoSTarget, next.QueueLimit, next.MaxBatch = first.ID, first.QoSTarget, first.QueueLimit, first.MaxBatch
	next.MaxQueryBatch, next.MaxSeqLen, next.Text = math.MaxInt, 0, first.Text
	for _, m := range f.variants {
		s := m.entry
		next.MaxQueryBatch = min(next.MaxQueryBatch, s.MaxQueryBatch)
		if s.MaxSeqLen > 0 && (next.MaxSeqLen == 0 || s.MaxSeqLen < next.MaxSeqLen) {
			next.MaxSeqLen = s.MaxSeqLen
		}
		_, v := m.config.Of()
		next.Variants = append(next.Variants, query.Variant{Name: m.variant, Accuracy: v.Accuracy, Service: s})
	}
	if sig := f.front.Signature(); sig != nil {
		_ = next.Loaded(sig.Info) // as it was before
	}
	f.front = next
	f.show()
}

// show lets requests see how the workers of all variants stand.
func (f *family) show() {
	all := standing{failed: true}
	for _, m := range f.variants {
		all.add(m.entry.Ready(), m.entry.GivenUp.Load(), m.entry.RetryAt.Load())
	}
	all.show(f.front)
}

// loaded records the inputs and outputs of a variant, which must be those of the others.
func (f *family) loaded(m *service, info query.Info) error {
	sig := f.front.Signature()
	if sig == nil {
		return f.front.Loaded(info)
	}
	if err := sig.Differs(m.entry.Signature()); err != nil {
		return fmt.Errorf("it cannot answer for %s: %w", f.front.Name, err)
	}
	return nil
}

// asked returns the service whose requests count for a service: those of a family count for
// its first.
func (s *service) asked() *query.Service {
	if s.family != nil && len(s.family.variants) > 0 && s.family.variants[0] == s {
		return s.family.front
	}
	return s.entry
}

// selects says in words what the variant that answers is chosen by, "" for a service that is
// not the first of a family.
func (s *service) selects() string {
	if s.family == nil || s.asked() == s.entry {
		return ""
	}
	l := &s.family.live
	switch p := l.Policy(); {
	case p != nil:
		return fmt.Sprintf("by a policy for %s queries/s, with an expected accuracy of %.3g and %.2g %% late or dropped", stats.Digits(4, p.Rate), p.Accuracy, 100*p.Violations)
	case s.family.refused != nil:
		return "by speed, the fastest answers: " + s.family.refused.Error()
	}
	return "by speed: the fastest answers until all latencies are known"
}

// inUse reports whether a request holds the service, or may still arrive for it as a variant.
func (s *service) inUse() bool {
	return s.entry.Users() != 0 || s.family != nil && !s.family.serves() && s.family.front.Users() != 0
}
