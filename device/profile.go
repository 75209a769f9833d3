package device

import (
	"time"

	"github.com/overlapd/overlapd/predictor"
)

// Format is the first field of every device profile.
const Format = "overlapd-device/1"

// Profile is a device as it is stored.
type Profile struct {
	Format  string         `json:"format"`
	Device  string         `json:"device"` // in words, "" if unknown
	Created time.Time      `json:"created"`
	Seed    uint64         `json:"seed"`
	Rows    int            `json:"rows"`    // measured groups that it was made of, with those kept aside
	Network predictor.File `json:"network"` // the middle of the runs of groups
	Spread  Spread         `json:"spread"`
	Solo    []SoloTime     `json:"solo,omitempty"` // of whole models, where they were given
	Test    Test           `json:"test"`
	Checks  Checks         `json:"checks"`
}

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
	Spread  []SpreadQuantiles `json:"spread"` // of groups kept aside, beside those of the profile
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
// not agree.
type Checks struct {
	MAPEFree    float64 `json:"mape_free"`     // percent, on groups kept aside, without the promises
	MAPE        float64 `json:"mape"`          // percent, with them
	Raised      float64 `json:"raised"`        // part of the groups kept aside that a smaller group holds up
	RaisedMost  float64 `json:"raised_most"`   // by what part at most
	SoloWorst   float64 `json:"solo_worst"`    // most that a given solo time is off from measured groups, as a part of those
	SoloWorstOf string  `json:"solo_worst_of"` // which
}
