package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/status"
)

func TestWriteGPUs(t *testing.T) {
	for name, tt := range map[string]struct{ overview, want string }{
		"none": {`{}`, ""},
		"a GPU": {`{"gpu": [{"device": "H", "uuid": "GPU-1", "services": ["a", "b"], "mps": {"phase": "running", "starts": 2, "server_pids": [7]},
			"sample": {"utilization": {"gpu_percent": 41}, "memory": {"total_bytes": 1073741824, "used_bytes": 1048576}, "power_watts": 300.4, "power_limit_watts": 700,
				"temperature_celsius": 61, "sm_clock_mhz": 1200, "max_sm_clock_mhz": 1980, "clock_reasons": "power limit"}}]}`,
			"\nH (GPU-1): a, b; MPS running, started 2 times; busy 41 % of the time; 1 of 1024 MiB taken; 300 of 700 W; 61 °C; 1200 of 1980 MHz; SLOWED DOWN: power limit\n"},
		"an instance that tells little": {`{"gpu": [{"device": "H", "uuid": "MIG-1", "services": ["a"], "sample": {"utilization": null, "memory": null, "clock_reasons": "idle"}}]}`,
			"\nH (MIG-1): a\n"},
		"a cut": {`{"services": [{"name": "a", "cut": {"operators": 16, "reason": "it is cheap", "costs": []}}]}`,
			"\na is cut into 16 operators: it is cheap\n"},
		"faults": {`{"gpu": [{"device": "H", "uuid": "GPU-1", "services": ["a"], "mps": {"phase": "given up", "starts": 6, "fault": "it died"}, "fault": "the GPU is lost"}],
			"services": [{"name": "a", "fault": "no MPS"}, {"name": "b"}]}`,
			"\nH (GPU-1): a; MPS given up, started 6 times; it died; no readings: the GPU is lost\n\na is given up: no MPS\n"},
	} {
		var o status.Status
		if err := json.Unmarshal([]byte(tt.overview), &o); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var b strings.Builder
		if writeGPUs(&b, &o); b.String() != tt.want {
			t.Errorf("%s: %q, want %q", name, b.String(), tt.want)
		}
	}
}
