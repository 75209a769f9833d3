package cuda

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// What a sample was written as is read back; only why a value is unknown is
// lost.
func TestSampleJSON(t *testing.T) {
	want := Sample{
		UUID: "GPU-1", Memory: known(memory{Total: 3, Free: 2, Used: 1}), Power: known(71.5), SMClock: known(0),
		ClockReasons: known(reasonsOf(nvml.ClocksEventReasonGpuIdle | nvml.ClocksEventReasonSwPowerCap | 1<<40)),
		Processes:    known([]Process{{PID: 7, Memory: known(uint64(5))}, {PID: 8}}),
	}
	for range 2 {
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var back Sample
		if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(want, back) {
			t.Errorf("%s: %+v, %v", data, back, err)
		}
		want.ClockReasons = known(reasonsOf(0))
	}
}

func TestReasons(t *testing.T) {
	for bits, want := range map[uint64]struct {
		words    reasons
		throttle bool
	}{
		0:                                 {"none", false},
		nvml.ClocksEventReasonGpuIdle:     {"idle", false},
		nvml.ClocksEventReasonSwPowerCap:  {"power limit", true},
		nvml.ClocksEventReasonAll | 1<<20: {"hardware slowdown, too hot (hardware), external power brake, too hot (driver), power limit, synchronised with slower GPUs, clocks set by the administrator, clocks set by the display, idle, reason 0x100000", true},
		nvml.ClocksThrottleReasonUserDefinedClocks: {"clocks set by the administrator", false},
	} {
		if got := reasonsOf(bits); got != want.words || got.Throttled() != want.throttle {
			t.Errorf("%#x: %s, %t", bits, got, got.Throttled())
		}
	}
}
