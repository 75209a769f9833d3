package journal

import (
	"encoding/json"
	"time"

	"github.com/overlapd/overlapd/overlap"
)

// Format is the first field of every decision log.
const Format = "overlapd-decisions/2"

// earlierFormat is read too: its services stay as they were at first, and the
// configuration alone holds their targets.
const earlierFormat = "overlapd-decisions/1"

// Header says where a log comes from.
type Header struct {
	Version string    `json:"version"` // of the program
	Commit  string    `json:"commit"`
	Device  string    `json:"device"`
	Epoch   time.Time `json:"epoch"` // that the times of the log count from
}

// head is the first line of a file. The services of its configuration are those
// of the checkpoint that follows; of one that was removed there is the ID only.
type head struct {
	Format string `json:"format"`
	Header
	Created time.Time `json:"created"` // when the file was begun
	Config  config    `json:"config"`
}

// config is a configuration without its predictor.
type config struct {
	overlap.Config
	Predictor *struct{} `json:"Predictor,omitempty"`
}

// checkpoint is the line that a replay starts from.
type checkpoint struct {
	Event event            `json:"e"`
	At    time.Duration    `json:"t"`
	State overlap.Snapshot `json:"state"`
}

// gap is the line that stands for lost records.
type gap struct {
	Event event  `json:"e"`
	Lost  uint64 `json:"lost"` // records
	Why   string `json:"why"`
}

// appendJSON appends v as a line.
func appendJSON(b []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return b, err
	}
	return append(append(b, text...), '\n'), nil
}
