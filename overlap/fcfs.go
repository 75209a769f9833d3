package overlap

import "time"

// fcfs serves in the order of arrival over all services.
type fcfs struct{ sequential }

func (fcfs) info() policyInfo {
	return policyInfo{"fcfs", "First come, first served, one batch at a time."}
}

func (fcfs) key(w work) time.Duration { return w.arrival }
