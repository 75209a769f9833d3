package device

import (
	"time"

	"github.com/overlapd/overlapd/predictor"
)

// Format is the first field of every device profile.
const Format = "overlapd-device/1"

// Profile is a device as it is stored.
type Profile struct {
	Format  string     `json:"format"`
	Device  string     `json:"device"` // in words, "" if unknown
	Created time.Time  `json:"created"`
	Seed    uint64     `json:"seed"`
	Rows    int        `json:"rows"` // measured groups that it was made of, with those kept aside
	Network Network    `json:"network"`
	Spread  Spread     `json:"spread"`
	Solo    []SoloTime `json:"solo,omitempty"` // of whole models, where they were given
	Test    Test       `json:"test"`
	Checks  Checks     `json:"checks"`
}

// Network tells the middle of the runs of a group: the base of its [Encoder]
// times the exponential of its output. It is not that of a predictor: more
// operators never make its output smaller, by the signs of its weights (see
// [Falls]).
type Network struct {
	Spans  int                      `json:"spans"` // most of a group
	Models []predictor.FeatureModel `json:"models"`
	Layers []predictor.Layer        `json:"layers"`
}

// MaxSpans limits the spans of a group. Asking for a group takes as many rows
// of the network as the group has parts, which are 2^spans-1.
const MaxSpans = 6

// SoloTime is what a whole model takes alone for a batch size and sequence
// length, as it was given and as the measured groups have it.
type SoloTime struct {
	Model  string  `json:"model"`
	Size   int     `json:"size"`
	SeqLen int     `json:"seq_len"`
	Micros float64 `json:"micros"`           // given; this is what the device takes
	Groups float64 `json:"groups,omitempty"` // microseconds, median of the measured groups of nothing else, 0 for none
}

// Test is how far a device is off, on groups kept aside. Errors are those of
// Latency as the groups alone have it, before solo times that were given.
type Test struct {
	Alone   predictor.Errors  `json:"alone"` // groups of one span
	Several predictor.Errors  `json:"several"`
	Spread  []SpreadQuantiles `json:"spread,omitempty"` // of groups kept aside, beside those of the profile
}

// SpreadQuantiles compares the relative spreads of the runs of groups.
type SpreadQuantiles struct {
	Spans     int     `json:"spans"`
	Rows      int     `json:"rows"`
	Part      float64 `json:"part"` // of the groups, that spread at most as much
	Measured  float64 `json:"measured"`
	Predicted float64 `json:"predicted"`
}

// Checks says what the promises of a device cost, and where measurements do
// not agree. Errors are mean absolute percentage errors on all groups kept
// aside.
type Checks struct {
	Free       float64 `json:"mape_free"`     // of a network that promises nothing
	Kept       float64 `json:"mape_kept"`     // of one that may not fall when operators are added
	Latency    float64 `json:"mape_latency"`  // of that and no group faster than a part of it
	Raised     int     `json:"raised"`        // groups kept aside that a part of them holds up
	RaisedMost float64 `json:"raised_most"`   // by what part of their latency at most
	Repeated   float64 `json:"mape_repeated"` // of the median of all other rows of the same span alone, for those that have any
	RepeatedOf int     `json:"repeated_of"`   // rows
}
