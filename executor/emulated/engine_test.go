package emulated

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

func TestInfo(t *testing.T) {
	m := device.ModelInfo{Name: "a", Operators: 3, Sizes: []int{1, 4}, SeqLens: []int{0}}
	i := describe(&m, 1, "hash", formula{operator: time.Microsecond}.Latency)
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
	i = describe(&m, 1, "hash", formula{operator: time.Microsecond}.Latency)
	if got := i.Inputs[0].Type.String(); got != "int64[batch,sequence]" {
		t.Errorf("input %s", got)
	}
	if len(i.Solo) != 4 || i.Solo[1].SeqLen != 16 || i.Solo[2].Size != 4 || !models.HasSeqLen(i.Inputs) {
		t.Errorf("solo: %+v", i.Solo)
	}
}

// BenchmarkRound reports how much later than on the device a round is over: what
// sending it and waking up take.
func BenchmarkRound(b *testing.B) {
	e := startRig(b, formula{operator: 20 * time.Microsecond})
	offset, _, err := e.arenas[0].Alloc(64)
	if err != nil {
		b.Fatal(err)
	}
	queries := []wire.QueryTensors{{ID: 1, Inputs: []wire.Tensor{
		{Type: models.Float32, Shape: []int64{1, Columns}, Offset: offset, Bytes: 16}}}}
	var late, rounds time.Duration
	for b.Loop() {
		if err := e.Run(1, []executor.SpanRequest{{Span: models.Span{Batch: 1, End: operators, Size: 1}, Queries: queries}}); err != nil {
			b.Fatal(err)
		}
		o := <-e.Outcomes()
		late, rounds = late+o.Took-o.Spans[0].DeviceTook, rounds+1
		o.Spans[0].Queries[0].Release()
	}
	b.ReportMetric(float64(late)/float64(rounds), "ns-late/op")
	if err := e.arenas[0].Free(offset); err != nil {
		b.Fatal(err)
	}
}
