package overlap

import (
	"slices"
	"strings"
)

// rule is a rule of the policy overlap that can be switched off, so that its gain can be
// measured (make ledger).
type rule uint16

const (
	ruleShedding rule = 1 << iota
	ruleTrust
	ruleBound
	ruleParts
	ruleRoomy
	ruleYield
	ruleSlice
	ruleWiden
	ruleWait
)

// ruleInfo describes a rule.
type ruleInfo struct {
	Name    string
	Summary string // one sentence
	rule    rule
}

var rules = []ruleInfo{
	{"shedding", "Work is postponed for which there is no time, by Moore's rule (Management Science 15(1), 1968).", ruleShedding},
	{"trust", "Shedding counts a query that can be batched with the middle between its isolated latency and its part of a full batch.", ruleTrust},
	{"bound", "Deadlines are kept by the bound of an estimate, not by its latency.", ruleBound},
	{"parts", "A batch may end its round before its last operator, where the group gains most (Abacus, section 6).", ruleParts},
	{"roomy", "A candidate that fits whole is cut as well, if it makes the group more than 1.2 times as long and gains more so.", ruleRoomy},
	{"yield", "The most urgent batch ends its round with a shorter one, where the two gain more than the group.", ruleYield},
	{"slice", "A batch that runs alone ends its round early, so that arrivals of other services can overlap its remaining operators.", ruleSlice},
	{"widen", "A batch on a share gets units that nothing else which waits could use, if it ends sooner for them.", ruleWiden},
	{"wait", "What would hold up a batch that is in time on all units only does not start before it.", ruleWait},
}

// Rules lists the rules of the policy overlap that the policy "overlap-without:NAME,NAME"
// switches off, for comparison only.
func Rules() []ruleInfo { return slices.Clone(rules) }

// without returns the policy overlap less the named rules, nil if there is no such rule.
func without(names string) policy {
	var p overlap
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(rules, func(r ruleInfo) bool { return r.Name == name })
		if i < 0 {
			return nil
		}
		p.off |= rules[i].rule
	}
	return p
}

// has reports whether a rule is in force.
func (p overlap) has(r rule) bool { return p.off&r == 0 }
