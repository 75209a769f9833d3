package load

// Scenario is the shape of the load.
type Scenario string

// The scenarios. The last four have the shape of those of MLPerf Inference.
const (
	Open         Scenario = "open"          // requests due at random times
	Closed       Scenario = "closed"        // each connection sends when it has its answer
	Server       Scenario = "server"        // Poisson arrivals, p99 within the target
	SingleStream Scenario = "single-stream" // one request at a time, p90
	MultiStream  Scenario = "multi-stream"  // volleys of eight requests, p99
	Offline      Scenario = "offline"       // all requests due at once, throughput
)

// volleySize is the number of samples in a multi-stream query of MLPerf.
const volleySize = 8

const mlperfNote = "MLPerf-like, not an MLPerf result"

func (s Scenario) known() bool {
	switch s {
	case Open, Closed, Server, SingleStream, MultiStream, Offline:
		return true
	}
	return false
}

// openLoop reports whether requests are due at times fixed beforehand.
func (s Scenario) openLoop() bool { return s == Open || s == Server }

// score returns what MLPerf reports for the scenario, or nil if it has no
// such scenario. Met counts a request with an error as one over the target.
func (s Scenario) score(l *Load) *Score {
	var q, value float64
	switch s {
	case Server, MultiStream:
		q, value = 99, l.Latency.P99
	case SingleStream:
		q, value = 90, l.Latency.P90
	case Offline:
		return &Score{Metric: "throughput", Value: l.Throughput, Unit: "requests/s", Note: mlperfNote}
	default:
		return nil
	}
	sc := &Score{Metric: "latency", Percentile: q, Value: value, Unit: "ms", Note: mlperfNote}
	if l.hasTarget && l.Requests > 0 {
		met := float64(l.good) >= q/100*float64(l.Requests)
		sc.Met = &met
	}
	return sc
}

// Score is the one number that MLPerf Inference reports for a scenario.
type Score struct {
	Metric     string  `json:"metric"`
	Percentile float64 `json:"percentile,omitempty"` // of latency
	Value      float64 `json:"value"`
	Unit       string  `json:"unit"`
	Met        *bool   `json:"met,omitempty"` // enough requests inside the target; absent without one
	Note       string  `json:"note"`
}
