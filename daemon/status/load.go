package status

import "time"

// Load says how many devices the load demands (Symphony, section 3.5) and where it
// comes from, smoothed over a window. Its JSON is the answer to /overlapd/load. All
// rates and shares are from 0 to 1.
type Load struct {
	DevicesDemanded float64                `json:"devices_demanded"`
	BadRate         float64                `json:"bad_rate"` // of all services that promise something
	Idle            float64                `json:"idle"`     // share of the time of all devices in which no round ran
	Devices         []DeviceLoad           `json:"devices"`
	Services        map[string]ServiceLoad `json:"services"`
	WindowSeconds   float64                `json:"window_seconds"` // how far back all of this looks
	AgeSeconds      float64                `json:"age_seconds"`    // how long ago it was so
	Stalled         bool                   `json:"stalled"`        // the scheduler shows no sign of life: nothing here is of now

	At time.Duration `json:"-"` // when it was so, since the daemon started
}

// DeviceLoad is what a device does.
type DeviceLoad struct {
	Name              string  `json:"name"` // "" where the configuration names none
	BusySeconds       float64 `json:"busy_seconds"`
	Idle              float64 `json:"idle"`
	IdleBeforeRoundMS float64 `json:"idle_before_round_ms"` // mean, 0 if there was no round
}

// ServiceLoad is what a service demands. A query is bad if it was late, dropped, or
// refused for want of room or time; one that failed, was cancelled or could not be
// accepted counts neither as good nor as bad.
type ServiceLoad struct {
	// Headroom is the part of the time that a query is allowed which 99 of 100 had left
	// when they were answered, rounded down to 5 %; of a bad one nothing was left.
	// It is 1 where there were no queries.
	Headroom float64 `json:"headroom"`

	// DeviceSeconds is the time of devices that its spans took: the time of a round is
	// divided among its spans in proportion to how long each was in the engine, so that
	// those of all services are together as long as the devices were busy.
	DeviceSeconds float64 `json:"device_seconds"`

	BadRate float64 `json:"bad_rate"`

	// DeviceTotal is DeviceSeconds since the service was first there.
	DeviceTotal time.Duration `json:"-"`

	// SavedSeconds is how much longer its spans would have taken alone than their part of
	// the time of devices, by the predictor. It is negative where they would have taken less.
	SavedSeconds float64 `json:"-"`
}
