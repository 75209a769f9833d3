package wire_test

import (
	"bytes"
	"fmt"

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

// The daemon places the input of a query in shared memory, and tells the worker in a frame where it
// is and which operators to run.
func Example() {
	arena := must(wire.NewInputArena(1<<20, false))
	defer arena.Close()
	offset, data, err := arena.Alloc(3)
	if err != nil {
		panic(err)
	}
	copy(data, "abc")
	input := models.Tensor{Type: models.Uint8, Shape: []int64{1, 3}, Offset: offset, Bytes: 3}
	run := &wire.Run{Round: 1, Batch: 7, End: 10, Size: 1, Queries: []wire.QueryTensors{{ID: 42, Inputs: []models.Tensor{input}}}}
	frame := must(wire.AppendFrame(nil, run))
	fmt.Println("the frame has", len(frame), "bytes")

	memory := must(wire.MapArena(arena.File().Fd(), false)) // the worker inherits the file
	defer wire.Unmap(memory)
	kind, payload, err := wire.NewFrameReader(bytes.NewReader(frame)).Next()
	if err != nil {
		panic(err)
	}
	var received wire.Run
	if err := wire.Decode(payload, &received); err != nil {
		panic(err)
	}
	q := received.Queries[0]
	wire.Find(&q.Inputs[0], memory)
	fmt.Printf("%v: operators [%d, %d) for query %d on %q\n", kind, received.Start, received.End, q.ID, q.Inputs[0].Data)
	// Output:
	// the frame has 102 bytes
	// run: operators [0, 10) for query 42 on "abc"
}
