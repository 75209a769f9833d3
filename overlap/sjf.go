package overlap

import "time"

// sjf serves what has the least predicted time left, as predicted when the
// query was queued or the batch paused. What is unknown goes first, and so
// becomes known.
type sjf struct{ sequential }

func (sjf) info() policyInfo {
	return policyInfo{"sjf", "Shortest job first by predicted time left, one batch at a time."}
}

func (sjf) key(w work) time.Duration { return w.rest() }
