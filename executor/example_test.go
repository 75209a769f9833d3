package executor_test

import (
	"context"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/executor/emulated"
	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// must returns v; nothing in the example fails.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// One service runs a batch on an emulated device, which takes 5 ms for it and answers zeros.
func Example() {
	model := must(device.NewModel(must(device.Linear("demo", "image,5,0\n"))))
	inputs := must(wire.NewInputArena(1<<16, false))
	defer inputs.Close()
	ready := make(chan struct{})
	services := []executor.ServiceSpec{{Name: "image", Load: wire.LoadSpec{ModelPath: "image"}, OutputBytes: 1 << 16, Inputs: inputs}}
	e := must(executor.New(executor.Options{
		Services: services,
		Inside:   emulated.New(model, 1, model.Models(), ""), // in place of Command, the argv of worker processes
		Events: func(e executor.Event) {
			if e.Kind == executor.WorkerReady {
				close(ready)
			}
		},
	}))
	defer e.Close()
	e.Start(context.Background())
	<-ready
	input := models.Tensor{Type: models.Float32, Shape: []int64{1, emulated.Columns}, Bytes: emulated.Columns * 4}
	input.Offset, _, _ = inputs.Alloc(input.Bytes)
	span := models.Span{Batch: 1, End: model.Models()[0].Operators, Size: 1}
	e.Run(1, []executor.SpanRequest{{Span: span, Queries: []wire.QueryTensors{{ID: 7, Inputs: []models.Tensor{input}}}}})
	outcome := <-e.Outcomes()
	query := outcome.Spans[0].Queries[0]
	fmt.Println("query", query.ID, "shape", query.Outputs[0].Shape, "after 5 ms:", outcome.Took >= 5*time.Millisecond)
	query.Release() // its memory may be used for other outputs
	inputs.Free(input.Offset)
	// Output:
	// query 7 shape [1 4] after 5 ms: true
}
