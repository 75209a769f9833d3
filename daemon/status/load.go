package status

import "time"

// Load says how many devices the current load demands (Symphony, section 3.5), averaged
// over a window, and how that is composed. Its JSON is the response of /overlapd/load.
// Rates and shares are between 0 and 1.
type Load struct {
	DevicesDemanded float64 `json:"devices_demanded"`

	// BadRate is the fraction of bad queries of all services with a QoS target.
	BadRate float64 `json:"bad_rate"`

	// Idle is the fraction of the time of all devices in which no round ran.
	Idle     float64                `json:"idle"`
	Devices  []DeviceLoad           `json:"devices"`
	Services map[string]ServiceLoad `json:"services"`

	// WindowSeconds is the length of the window, AgeSeconds the time since its end.
	WindowSeconds float64 `json:"window_seconds"`
	AgeSeconds    float64 `json:"age_seconds"`

	// Stalled is set if the scheduler makes no progress, so that all values are outdated.
	Stalled bool `json:"stalled"`

	// At is the end of the window, since the daemon started.
	At time.Duration `json:"-"`
}

// DeviceLoad is the load of one device.
type DeviceLoad struct {
	// Name is empty if the configuration names no device.
	Name        string  `json:"name"`
	BusySeconds float64 `json:"busy_seconds"`
	Idle        float64 `json:"idle"`

	// IdleBeforeRoundMS is the mean idle time before a round, 0 without rounds.
	IdleBeforeRoundMS float64 `json:"idle_before_round_ms"`
}

// ServiceLoad is what a service demands. A query is bad if it was late, dropped, or
// rejected for lack of memory, queue places or time. A query that failed, was cancelled or
// could not be accepted is neither good nor bad.
type ServiceLoad struct {
	// Headroom is the fraction of the allowed time that at least 99 % of the queries had
	// left when they were answered, rounded down to 5 %. A bad query had nothing left.
	// Headroom is 1 if there were no queries.
	Headroom float64 `json:"headroom"`

	// DeviceSeconds is the device time of the service. The time of a round is divided among
	// its operator ranges in proportion to their time in the engine, so the sum over all
	// services is the time that the devices were busy.
	DeviceSeconds float64 `json:"device_seconds"`

	BadRate float64 `json:"bad_rate"`

	// DeviceTotal is DeviceSeconds since the service was added.
	DeviceTotal time.Duration `json:"-"`

	// SavedSeconds is the device time that overlapping has saved for the service, by the
	// isolated latencies of the predictor. It is negative if overlapping was slower.
	SavedSeconds float64 `json:"-"`
}
