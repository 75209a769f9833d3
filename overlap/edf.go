package overlap

import "time"

// edf serves the earliest deadline first.
type edf struct{ sequential }

func (edf) info() policyInfo {
	return policyInfo{"edf", "Earliest deadline first, one batch at a time."}
}

func (edf) key(w work) time.Duration { return w.deadline }
