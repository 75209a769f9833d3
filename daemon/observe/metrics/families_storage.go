package metrics

// storageFamilies tell of what cannot be stored. Serving goes on without.
var storageFamilies = []family{
	whole("overlapd_state_file_lost", gauge, "1 if the state file was damaged or replaced while it was in use: nothing is stored in it until the daemon is started again.",
		func(s *Snapshot) int { return whether(s.Storage.StateLost) }),
	whole("overlapd_decision_log_stopped", gauge, "1 while the decision log cannot be written.", func(s *Snapshot) int { return whether(s.Storage.LogStopped) }),
	whole("overlapd_decisions_lost_total", counter, "Events of the scheduler that are not in the decision log because the disk was too slow or took nothing.",
		func(s *Snapshot) uint64 { return s.Storage.DecisionsLost }),
}

func whether(b bool) int {
	if b {
		return 1
	}
	return 0
}
