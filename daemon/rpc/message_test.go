package rpc

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// callOf returns a call to a service, "echo" unless there is one of the name.
func callOf(t testing.TB, service string) *query.Call {
	t.Helper()
	f := &fake{}
	f.services(t)
	if s := f.Service([]byte(service)); s != nil && s.Signature() != nil {
		return query.NewCall(s)
	}
	return query.NewCall(f.list[0])
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// repeated returns a message whose field n stands there so many times.
func repeated(n protowire.Number, value []byte, times int) []byte {
	return bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), value), times)
}

// Numbers of fields: of a request, of an input, of an output, and of typed contents.
const (
	fieldParameters = 4
	fieldInputs     = 5
	fieldOutputs    = 6
	fieldRaw        = 7

	fieldShape            = 3
	fieldContents         = 5
	fieldOutputParameters = 2

	fieldFP32  = 6
	fieldFP64  = 7
	fieldBytes = 8
)

func TestMeasureRefuses(t *testing.T) {
	input := func(b []byte) []byte { return repeated(fieldInputs, b, 1) }
	shape := []byte(nil)
	for range maxDimensions + 1 {
		shape = protowire.AppendVarint(protowire.AppendTag(shape, fieldShape, protowire.VarintType), 1)
	}
	for name, c := range map[string]struct {
		message []byte
		want    string
	}{
		"inputs":               {repeated(fieldInputs, nil, maxTensors+1), "257 inputs"},
		"outputs":              {repeated(fieldOutputs, nil, maxTensors+1), "257 outputs"},
		"raw":                  {repeated(fieldRaw, nil, maxTensors+1), "257 raw"},
		"parameters":           {keys(fieldParameters, query.MaxParameters+1), "65 parameters"},
		"parameters of input":  {input(keys(fieldParameters, query.MaxParameters+1)), "65 parameters"},
		"parameters of output": {repeated(fieldOutputs, keys(fieldOutputParameters, query.MaxParameters+1), 1), "65 parameters"},
		"shape":                {input(repeated(fieldShape, make([]byte, maxDimensions+1), 1)), "too many dimensions"},
		"shape, not packed":    {input(shape), "too many dimensions"},
		"half a tag":           {[]byte{0x80}, "does not match the protocol"},
		"field 0":              {[]byte{0x00, 0x00}, "does not match the protocol"},
		"length over the end":  {[]byte{0x2a, 0x05, 0x00}, "does not match the protocol"},
		"broken input":         {input([]byte{0xff}), "does not match the protocol"},
		"broken output":        {repeated(fieldOutputs, []byte{0xff}, 1), "does not match the protocol"},
		"text that is not":     {protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "\xff"), "does not match the protocol"},
	} {
		var m exchange
		b := query.NewBudget(1 << 30)
		m.unmarshal(c.message, b)
		fault := m.fault
		if fault == nil {
			fault = m.fill(callOf(t, "echo"))
		}
		says(t, name, fault, c.want)
		if m.release(); b.Used() != 0 {
			t.Errorf("%s: %d bytes are held", name, b.Used())
		}
	}
}

// FuzzRequest decodes arbitrary messages: whatever passes keeps the limits, and
// its tensors are what the contents say.
func FuzzRequest(f *testing.F) {
	f.Add(encode(f, typedRequest("1")))
	f.Add(encode(f, rawRequest(8)))
	f.Add(encode(f, variedRequest(map[string]*inference.InferParameter{"variant": parameter("best"), "least_accuracy": parameter(77.0)})))
	f.Add(repeated(fieldInputs, repeated(fieldContents, []byte{0x42, 0x00}, 3), 2))
	for _, typ := range slices.Sorted(maps.Keys(packs)) {
		f.Add(encode(f, &inference.ModelInferRequest{Inputs: []*inference.ModelInferRequest_InferInputTensor{{
			Name: "X", Datatype: typ.Protocol(), Shape: []int64{1}, Parameters: map[string]*inference.InferParameter{"a": parameter("b")},
			Contents: &inference.InferTensorContents{IntContents: []int32{1}, BytesContents: [][]byte{[]byte("a")}, Fp32Contents: []float32{1}},
		}}}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		budget := query.NewBudget(1 << 20)
		var m exchange
		m.unmarshal(b, budget)
		if budget.Used() != m.held {
			t.Fatalf("%d bytes are taken, %d held", budget.Used(), m.held)
		}
		if m.fault != nil {
			return
		}
		r := &m.request
		c := callOf(t, r.ModelName)
		fault := m.fill(c)
		if fault != nil {
			if fault.Status != 400 || fault.Message == "" {
				t.Fatalf("%+v", fault)
			}
			return
		}
		if len(r.Inputs) > maxTensors || len(r.Outputs) > maxTensors || len(r.RawInputContents) > maxTensors || len(r.Parameters) > query.MaxParameters {
			t.Fatal("the limits do not hold")
		}
		for _, in := range c.Given {
			c.Reply.Outputs = append(c.Reply.Outputs, in.Tensor)
		}
		if v := c.Service.Variants; c.Variant >= 0 {
			if c.Reply.Variant = v[c.Variant].Name; !(v[c.Variant].Accuracy >= c.LeastAccuracy) {
				t.Fatalf("%s is to answer with an accuracy of %v", c.Reply.Variant, c.LeastAccuracy)
			}
		}
		m.ctx = contextOf(budget)
		if fault := m.Encode(c); fault != nil {
			t.Fatal(fault)
		}
		var single inference.ModelInferResponse
		if err := proto.Unmarshal(m.answer.bytes, &single); err != nil {
			t.Fatal(err)
		}
		m.answer.release()
		if m.stream = true; m.Encode(c) != nil {
			t.Fatal("a stream has no answer")
		}
		var streamed inference.ModelStreamInferResponse
		if err := proto.Unmarshal(m.answer.bytes, &streamed); err != nil || !proto.Equal(streamed.InferResponse, &single) {
			t.Fatalf("%v: a stream has %v, a call %v", err, &streamed, &single)
		}
		m.answer.release()
		if n := len(single.Outputs); n != len(c.Outputs) || len(single.RawOutputContents) != n || budget.Used() != m.held {
			t.Fatalf("%d outputs, %d were asked for, %d bytes are held", n, len(c.Outputs), budget.Used()-m.held)
		}
	})
}

// contextOf returns the context of a call whose answer takes memory of a budget.
func contextOf(b *query.Budget) context.Context {
	c := &conn{listener: &listener{memory: b}, open: context.Background()}
	return peer.NewContext(context.Background(), &peer.Peer{AuthInfo: link{conn: c}})
}

func TestDecode(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*inference.ModelInferRequest)
		want   string
	}{
		"raw for some": {func(r *inference.ModelInferRequest) {
			r.Inputs = append(r.Inputs, r.Inputs[0])
			r.RawInputContents = [][]byte{nil}
		}, "for all inputs or for none"},
		"raw and typed": {func(r *inference.ModelInferRequest) { r.RawInputContents = [][]byte{nil} }, "send one of them"},
		"datatype":      {func(r *inference.ModelInferRequest) { r.Inputs[0].Datatype = "FLOAT" }, `unknown datatype "FLOAT"`},
		"no datatype":   {func(r *inference.ModelInferRequest) { r.Inputs[0].Datatype = "" }, "unknown datatype"},
		"classification": {func(r *inference.ModelInferRequest) {
			r.Outputs = []*inference.ModelInferRequest_InferRequestedOutputTensor{{Name: "X", Parameters: named("classification", int64(3))}}
		}, "does not support"},
		"sequence":          {func(r *inference.ModelInferRequest) { r.Parameters = named("sequence_id", int64(1)) }, "reserved"},
		"triton":            {func(r *inference.ModelInferRequest) { r.Parameters = named("triton_x", int64(1)) }, "reserved"},
		"headers":           {func(r *inference.ModelInferRequest) { r.Parameters = named("headers", "a") }, "reserved"},
		"timeout negative":  {func(r *inference.ModelInferRequest) { r.Parameters = named("timeout", int64(-1)) }, "not -1"},
		"timeout too long":  {func(r *inference.ModelInferRequest) { r.Parameters = named("timeout", uint64(1<<63)) }, "must be in"},
		"timeout as text":   {func(r *inference.ModelInferRequest) { r.Parameters = named("timeout", "5") }, "int64_param"},
		"timeout unset":     {func(r *inference.ModelInferRequest) { r.Parameters = named("timeout", nil) }, "int64_param"},
		"priority negative": {func(r *inference.ModelInferRequest) { r.Parameters = named("priority", int64(-1)) }, "must be in"},
		"priority huge":     {func(r *inference.ModelInferRequest) { r.Parameters = named("priority", uint64(1<<40)) }, "must be in"},
		"final as text":     {func(r *inference.ModelInferRequest) { r.Parameters = named(parameterFinal, "yes") }, "bool_param"},
	} {
		r := typedRequest("1")
		c.change(r)
		x := exchange{}
		x.unmarshal(encode(t, r), query.NewBudget(1<<20))
		says(t, name, x.fill(callOf(t, "echo")), c.want)
	}
	r := typedRequest(strings.Repeat("i", 10))
	r.Parameters = map[string]*inference.InferParameter{
		"timeout": parameter(int64(1500)), "priority": parameter(uint64(2)), "unknown": parameter("x"), "binary_data_output": parameter(true),
	}
	r.Outputs = []*inference.ModelInferRequest_InferRequestedOutputTensor{{Name: "X"}}
	x, c := exchange{}, callOf(t, "echo")
	x.unmarshal(encode(t, r), query.NewBudget(1<<20))
	if fault := x.fill(c); fault != nil || c.Timeout.Microseconds() != 1500 || c.Priority != 2 || string(c.ID) != "iiiiiiiiii" || len(c.Outputs) != 1 || c.Outputs[0].Port != 0 {
		t.Errorf("%+v, %v", c, fault)
	}
}

func named(key string, value any) map[string]*inference.InferParameter {
	return map[string]*inference.InferParameter{key: parameter(value)}
}
