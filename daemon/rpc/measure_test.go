package rpc

import (
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// live returns how much memory is in use.
func live() int64 {
	runtime.GC()
	runtime.GC() // what has a finalizer goes now
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// keys returns entries of a map of parameters with as many keys, as short as
// can be.
func keys(n protowire.Number, count int) (b []byte) {
	for i := range count {
		entry := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte{byte('!' + i)})
		entry = protowire.AppendBytes(protowire.AppendTag(entry, 2, protowire.BytesType), []byte{0x08, 0x01})
		b = protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), entry)
	}
	return b
}

// What is measured covers what is made of a message, even of those that grow
// most.
func TestMeasureCovers(t *testing.T) {
	const many, pieces = 1 << 14, 1 << 11 // gRPC takes time that grows by the square of pieces
	typed := func(datatype string, contents []byte) []byte {
		input := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), datatype)
		return repeated(fieldInputs, append(input, repeated(fieldContents, contents, 1)...), 1)
	}
	scalars := func(n protowire.Number) (b []byte) {
		for range many {
			b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), 0)
		}
		return b
	}
	shape := repeated(fieldShape, make([]byte, maxDimensions), 1)
	messages := map[string][]byte{
		"empty BYTES":         typed("BYTES", repeated(fieldBytes, nil, many)),
		"BYTES of one":        typed("BYTES", repeated(fieldBytes, []byte{1}, many)),
		"BYTES of 33":         typed("BYTES", repeated(fieldBytes, make([]byte, 33), many)),
		"INT64":               typed("INT64", repeated(3, make([]byte, many), 1)),
		"INT64 in pieces":     typed("INT64", repeated(3, []byte{0}, pieces)),
		"INT64, not packed":   typed("INT64", scalars(3)),
		"UINT64":              typed("UINT64", repeated(5, make([]byte, many), 1)),
		"INT32":               typed("INT32", repeated(2, make([]byte, many), 1)),
		"UINT8":               typed("UINT8", repeated(4, make([]byte, many), 1)),
		"BOOL":                typed("BOOL", repeated(1, make([]byte, many), 1)),
		"FP32":                typed("FP32", repeated(fieldFP32, make([]byte, 4*many), 1)),
		"FP32 in pieces":      typed("FP32", repeated(fieldFP32, make([]byte, 4), pieces)),
		"FP64":                typed("FP64", repeated(fieldFP64, make([]byte, 8*many), 1)),
		"empty inputs":        repeated(fieldInputs, nil, maxTensors),
		"empty outputs":       repeated(fieldOutputs, nil, maxTensors),
		"empty raw":           repeated(fieldRaw, nil, maxTensors),
		"empty contents":      repeated(fieldInputs, repeated(fieldContents, nil, 1), maxTensors),
		"shapes":              repeated(fieldInputs, shape, maxTensors),
		"parameters":          keys(fieldParameters, query.MaxParameters),
		"inputs' parameters":  repeated(fieldInputs, keys(fieldParameters, query.MaxParameters), maxTensors),
		"outputs' parameters": repeated(fieldOutputs, keys(fieldOutputParameters, query.MaxParameters), maxTensors),
		"a long name":         repeated(1, []byte(strings.Repeat("a", many)), 1),
	}
	var made []any // all of it stays until the end, so that one look is after a message and before the next
	before := live()
	for name, b := range messages {
		budget := query.NewBudget(1 << 40)
		decode := func(x *exchange) (packed [][]byte) {
			x.unmarshal(b, budget)
			for _, in := range x.request.Inputs {
				typ, _ := models.ProtocolType(in.Datatype)
				data, _ := packContents(in.Name, typ, in.Contents)
				packed = append(packed, data)
			}
			return packed
		}
		decode(new(exchange)) // what is made once is made now
		m := new(exchange)
		made = append(made, decode(m), m)
		after := live()
		took := after - before
		before = after
		if m.fault != nil {
			t.Errorf("%s: %v", name, m.fault)
		}
		const noise = 16 << 10 // of the runtime's own
		if took > m.held+noise {
			t.Errorf("%s: %d bytes of the wire take %d, and %d are accounted", name, len(b), took, m.held)
		}
	}
	runtime.KeepAlive(made)
	runtime.KeepAlive(messages)
}
