package planning

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/predictor"
)

// TestMeasuredOnEachDevice finds what was measured on each of unequal devices: by the
// model, its threads and the MIG profile.
func TestMeasuredOnEachDevice(t *testing.T) {
	in := &pipelineInput{state: map[string]predictor.Snapshot{}}
	in.config = config.Default()
	for _, d := range []struct{ name, kind, cores, mig string }{
		{"one", "cpu", "0", ""}, {"two", "cpu", "1-2", ""}, {"part", "cuda", "", "1g.10gb"}, {"gpu", "cuda", "", ""},
	} {
		in.config.Devices = append(in.config.Devices, config.Device{Name: d.name, Kind: d.kind, Cores: d.cores, MIG: d.mig})
	}
	store := func(on, hash, share string, nanos ...float64) {
		text := fmt.Sprintf(`{"operators":%d,"cells":[{"size":1,"seq_len":0,"nanos":%s}]}`, len(nanos), strings.ReplaceAll(fmt.Sprint(nanos), " ", ","))
		known, err := snapshot(text)
		if err != nil {
			t.Fatal(err)
		}
		in.state[strings.Join([]string{on, hash, "ort 1", fmt.Sprint(len(nanos), " operators"), share}, "|")] = known
	}
	cpu := cli.CPU()
	store(cpu, "hash", "1 threads", 1000, 2000)
	store(cpu, "hash", "2 threads", 600, 1200)
	store(cpu, "other", "2 threads", 1, 1)
	store("A100 8.0 MIG 1g.10gb", "hash", "4 threads, MPS 50%", 400, 800)
	store("A100 8.0", "hash", "4 threads", 100, 200)
	s := &config.Service{Name: "s"}
	for i, want := range []float64{1, 0.6, 0.4, 0.1} {
		s.Threads = 0
		if i >= 2 {
			s.Threads = 4
		}
		found, err := in.measured(i, s, "hash")
		if err != nil || inMicros(found.Cells[0].Nanos)[0] != want {
			t.Errorf("device %d: %+v, %v, want %v us", i, found, err, want)
		}
	}
	store("V100 7.0", "hash", "4 threads", 100, 200)
	if _, err := in.measured(3, s, "hash"); err == nil || !strings.Contains(err.Error(), "it was measured on A100 8.0 and on V100 7.0, and device gpu may be either") {
		t.Error(err)
	}
	if _, err := in.measured(0, s, "hash"); err == nil || !strings.Contains(err.Error(), "it was never measured on a device like one, with 4 threads; run the daemon there") {
		t.Error(err)
	}
}

// TestInBlocks adds operators up, and has batches between those that were measured on the
// line through both.
func TestInBlocks(t *testing.T) {
	times := timesOf{1: {1, 2, 3}, 4: {4, 5, 6}}
	if diff := cmp.Diff([][]float64{{3, 3}, {5, 4}, {7, 5}}, inBlocks(times, []int{2, 3}, 3)); diff != "" {
		t.Error(diff)
	}
	if got := inBlocks(times, []int{1, 2, 3}, 0); len(got) != 1 {
		t.Errorf("%v of a service that merges nothing", got)
	}
}

func snapshot(text string) (known predictor.Snapshot, err error) {
	return known, json.Unmarshal([]byte(text), &known)
}
