package inference

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// declaration matches a line of inference.proto that declares a field, a value or a call.
var declaration = regexp.MustCompile(`(?m)^ +([\w<>, ]+ = \d+|rpc .*);`)

// TestGenerated compares the fields, values and calls of inference.proto with those of the
// generated code. It does not see in which message a field is.
func TestGenerated(t *testing.T) {
	text, err := os.ReadFile("inference.proto")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range declaration.FindAllStringSubmatch(string(text), -1) {
		want = append(want, m[1])
	}
	file := File_inference_proto
	have := append(fields(file.Messages()), values(file.Enums())...)
	for i := range file.Services().Len() {
		methods := file.Services().Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			stream := map[bool]string{true: "stream "}
			have = append(have, fmt.Sprintf("rpc %s(%s%s) returns (%s%s)", m.Name(), stream[m.IsStreamingClient()], m.Input().Name(), stream[m.IsStreamingServer()], m.Output().Name()))
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) || len(want) < 100 {
		t.Errorf("generate it again: it has\n%v, the file\n%v", have, want)
	}
}

func fields(list protoreflect.MessageDescriptors) (all []string) {
	for i := range list.Len() {
		m := list.Get(i)
		if m.IsMapEntry() {
			continue
		}
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			all = append(all, fmt.Sprintf("%s %s = %d", typeOf(f), f.Name(), f.Number()))
		}
		all = append(append(all, fields(m.Messages())...), values(m.Enums())...)
	}
	return all
}

func values(list protoreflect.EnumDescriptors) (all []string) {
	for i := range list.Len() {
		for j := range list.Get(i).Values().Len() {
			v := list.Get(i).Values().Get(j)
			all = append(all, fmt.Sprintf("%s = %d", v.Name(), v.Number()))
		}
	}
	return all
}

// typeOf returns a field's type as inference.proto writes it.
func typeOf(f protoreflect.FieldDescriptor) string {
	if f.IsMap() {
		return "map<string, " + typeOf(f.MapValue()) + ">"
	}
	name := f.Kind().String()
	if m := f.Message(); m != nil {
		name = string(m.Name())
	} else if e := f.Enum(); e != nil {
		name = string(e.Name())
	}
	if f.IsList() {
		return "repeated " + name
	}
	return name
}

// TestProtocol holds what existing clients depend on: they carry these names
// and numbers themselves.
func TestProtocol(t *testing.T) {
	if name := GRPCInferenceService_ServiceDesc.ServiceName; name != "inference.GRPCInferenceService" {
		t.Errorf("the service is %s", name)
	}
	for _, c := range []struct {
		message protoreflect.Message
		field   protoreflect.Name
		number  protoreflect.FieldNumber
	}{
		{(&ModelInferRequest{}).ProtoReflect(), "model_name", 1},
		{(&ModelInferRequest{}).ProtoReflect(), "parameters", 4},
		{(&ModelInferRequest{}).ProtoReflect(), "inputs", 5},
		{(&ModelInferRequest{}).ProtoReflect(), "outputs", 6},
		{(&ModelInferRequest{}).ProtoReflect(), "raw_input_contents", 7},
		{(&ModelInferResponse{}).ProtoReflect(), "raw_output_contents", 6},
		{(&ModelInferRequest_InferInputTensor{}).ProtoReflect(), "contents", 5},
		{(&InferTensorContents{}).ProtoReflect(), "bytes_contents", 8},
		{(&InferParameter{}).ProtoReflect(), "uint64_param", 5},
		{(&ModelConfig{}).ProtoReflect(), "dynamic_batching", 11},
		{(&ModelConfig{}).ProtoReflect(), "parameters", 14},
		{(&ModelConfig{}).ProtoReflect(), "model_transaction_policy", 19},
		{(&ModelStatistics{}).ProtoReflect(), "inference_stats", 6},
	} {
		f := c.message.Descriptor().Fields().ByName(c.field)
		if f == nil || f.Number() != c.number {
			t.Errorf("%s.%s is not field %d", c.message.Descriptor().Name(), c.field, c.number)
		}
	}
}
