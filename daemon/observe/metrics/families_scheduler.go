package metrics

// schedulerFamilies tell of the rounds and of the goroutine that decides them.
var schedulerFamilies = []family{
	{
		name: "overlapd_info", kind: gauge, help: "Always 1; the version of overlapd and the policy that chooses groups.",
		labels: []string{"version", "policy"},
		values: func(s *Snapshot, e *emitter) { e.value(1, s.Version, s.Policy) },
	},
	whole("overlapd_rounds_total", counter, "Rounds that were begun.", func(s *Snapshot) uint64 { return s.Scheduler.Rounds }),
	whole("overlapd_device_busy_seconds_total", counter, "Time that the rounds took together; its rate is the share of time in which the device had work.",
		func(s *Snapshot) float64 { return s.Scheduler.Busy.Seconds() }),
	histogramOf("overlapd_round_seconds", "Time that a round took.", func(r *Record) *Histogram { return &r.groups.round }),
	histogramOf("overlapd_group_spans", "Spans in a group.", func(r *Record) *Histogram { return &r.groups.spans }),
	histogramOf("overlapd_dispatch_headroom_seconds", "Time from the start of a group to the first deadline in it; 0 if that had passed.",
		func(r *Record) *Histogram { return &r.groups.headroom }),

	whole("overlapd_overlap_solo_seconds_total", counter, "Solo times of the spans in groups of several, one after another.",
		func(s *Snapshot) float64 { return s.Record.solo.Seconds() }),
	whole("overlapd_overlap_gained_seconds_total", counter, "Solo time gained: by how much groups of several spans were faster than their spans one after another.",
		func(s *Snapshot) float64 { return s.Record.gained.Seconds() }),
	whole("overlapd_overlap_lost_seconds_total", counter, "By how much groups of several spans were slower than their spans one after another.",
		func(s *Snapshot) float64 { return s.Record.lost.Seconds() }),

	whole("overlapd_plans_made_total", counter, "Rounds that were chosen while the one before ran.", func(s *Snapshot) uint64 { return s.Scheduler.Made }),
	whole("overlapd_plans_kept_total", counter, "Plans that were carried out.", func(s *Snapshot) uint64 { return s.Scheduler.Kept }),
	whole("overlapd_plans_overturned_total", counter, "Plans that were given up, for news or because they did not fit any more.",
		func(s *Snapshot) uint64 { return s.Scheduler.Overturned }),

	whole("overlapd_schedulers", gauge, "Scheduler goroutines: one, or one for each instance of a GPU that is divided.",
		func(s *Snapshot) int { return s.Scheduler.Schedulers }),
	whole("overlapd_scheduler_busy_seconds_total", counter, "Time that the scheduler goroutines worked; its rate for each of overlapd_schedulers is their saturation, 1 at most.",
		func(s *Snapshot) float64 { return s.Record.busy.Seconds() }),
	whole("overlapd_scheduler_turns_total", counter, "Times that the scheduler goroutine woke up.", func(s *Snapshot) uint64 { return s.Record.turns }),
	whole("overlapd_scheduler_inbox_length", gauge, "Messages that wait for the scheduler goroutine, now.", func(s *Snapshot) int { return s.Scheduler.Inbox }),
	whole("overlapd_scheduler_inbox_limit", gauge, "Messages that may wait; queries beyond are refused.", func(s *Snapshot) int { return s.Scheduler.InboxLimit }),
	whole("overlapd_scheduler_beat_age_seconds", gauge, "Time since the scheduler goroutine last ended a turn; it wakes once a second at least.",
		func(s *Snapshot) float64 { return s.Scheduler.BeatAge.Seconds() }),
	whole("overlapd_scheduler_snapshot_age_seconds", gauge, "Age of what the scheduler goroutine told; it is asked anew for every scrape.",
		func(s *Snapshot) float64 { return s.Age.Seconds() }),
}

// predictionFamilies tell how good predictions are.
var predictionFamilies = []family{
	whole("overlapd_predictor_serving", gauge, "1 if a network predicts groups of several spans, 0 if they count as long as their spans one after another.",
		func(s *Snapshot) float64 {
			if s.Scheduler.Predictor {
				return 1
			}
			return 0
		}),
	histogramOf("overlapd_group_prediction_ratio", "Measured/predicted time of groups of several spans.", func(r *Record) *Histogram { return &r.groups.groupRatio }),
	histogramOf("overlapd_group_prediction_error_ratio", "Error of the prediction for groups of several spans: |predicted/measured - 1|.",
		func(r *Record) *Histogram { return &r.groups.groupError }),
	histogramOf("overlapd_solo_prediction_ratio", "Measured/predicted time of spans that ran alone.", func(r *Record) *Histogram { return &r.groups.soloRatio }),
	histogramOf("overlapd_prediction_margin_ratio", "Margin of a group: what is compared with its deadlines as a multiple of the predicted time.",
		func(r *Record) *Histogram { return &r.groups.margin }),
	whole("overlapd_prediction_bound_exceeded_total", counter, "Rounds that took longer than predicted with the margin; one in a hundred is meant to.",
		func(s *Snapshot) uint64 { return s.Record.exceeded }),
	{
		name: "overlapd_predictor_fallbacks_total", kind: counter, help: "Groups that the scheduler asked about and the network did not answer for, by reason.",
		labels: []string{"reason"},
		values: func(s *Snapshot, e *emitter) {
			for _, c := range s.Scheduler.Fallbacks {
				e.value(float64(c.N), c.Reason)
			}
		},
	},
	whole("overlapd_predictor_unknown_total", counter, "Groups that the scheduler asked about and nothing was known of.",
		func(s *Snapshot) uint64 { return s.Scheduler.Unknown }),
}
