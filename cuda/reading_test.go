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
