package emulated

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
)

func TestInfo(t *testing.T) {
	m := device.ModelInfo{Name: "a", Operators: 3, Sizes: []int{1, 4}, SeqLens: []int{0}}
	i := describe(&m, 1, 1, "hash", formula{operator: time.Microsecond}.Latency)
	if got := i.Inputs[0].Type.String(); got != "float32[batch,4]" || i.Inputs[0].Name != InputName {
		t.Errorf("input %s", got)
	}
	if got := i.Outputs[0].Type.String(); got != "float32[batch,4]" || i.Outputs[0].Name != OutputName {
		t.Errorf("output %s", got)
	}
	if len(i.Operators) != 3 || i.Operators[2].Name != "a/2" || i.Hash != "hash" || i.ORTVersion != "" {
		t.Errorf("%+v", i)
	}
	if len(i.Solo) != 2 || i.Solo[1].Size != 4 || i.Solo[1].SeqLen != 0 {
		t.Fatalf("solo: %+v", i.Solo)
	}
	for _, n := range i.Solo[1].Nanos {
		if n != 8000 {
			t.Errorf("solo: %v", i.Solo[1].Nanos)
		}
	}
	m.SeqLens = []int{8, 16}
	i = describe(&m, 1, 1, "hash", formula{operator: time.Microsecond}.Latency)
	if got := i.Inputs[0].Type.String(); got != "int64[batch,sequence]" {
		t.Errorf("input %s", got)
	}
	if len(i.Solo) != 4 || i.Solo[1].SeqLen != 16 || i.Solo[2].Size != 4 || !models.HasSeqLen(i.Inputs) {
		t.Errorf("solo: %+v", i.Solo)
	}
}
