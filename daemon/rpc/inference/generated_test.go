package inference

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// declared are the lines of inference.proto that the generated code must have:
// "message M", "M.field = 1", "enum E.VALUE = 1", "rpc Name".
var (
	fieldLine = regexp.MustCompile(`^(repeated )?(map<string, \w+>|\w+) (\w+) = (\d+);`)
	valueLine = regexp.MustCompile(`^([A-Z0-9_]+) = (\d+);`)
	rpcLine   = regexp.MustCompile(`^rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\);`)
	openLine  = regexp.MustCompile(`^(message|enum|service|oneof) (\w+) \{(\})?$`)
)

// TestGenerated compares inference.proto, read line by line, with what the
// generated code says of itself.
func TestGenerated(t *testing.T) {
	text, err := os.ReadFile("inference.proto")
	if err != nil {
		t.Fatal(err)
	}
	want := declarations(t, string(text))
	have := descriptions(File_inference_proto)
	for d := range want {
		if !have[d] {
			t.Errorf("inference.proto says %q, the generated code does not: generate it again", d)
		}
	}
	for d := range have {
		if !want[d] {
			t.Errorf("the generated code says %q, inference.proto does not: generate it again", d)
		}
	}
	if len(want) < 100 {
		t.Errorf("only %d declarations were found", len(want))
	}
}

func declarations(t *testing.T, text string) map[string]bool {
	found := map[string]bool{}
	var within []string // names of the blocks that are open; "" for a oneof
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "//")
		line = strings.TrimSpace(line)
		scope := strings.Join(names(within), ".")
		switch m := openLine.FindStringSubmatch(line); {
		case m != nil:
			name := m[2]
			if m[1] == "oneof" {
				name = ""
			} else {
				found[m[1]+" "+join(scope, name)] = true
			}
			if m[3] == "" {
				within = append(within, name)
			}
			continue
		case line == "}":
			within = within[:len(within)-1]
			continue
		case line == "", strings.HasPrefix(line, "syntax"), strings.HasPrefix(line, "package"), strings.HasPrefix(line, "option"), strings.HasPrefix(line, "reserved"):
			continue
		}
		switch f, v, r := fieldLine.FindStringSubmatch(line), valueLine.FindStringSubmatch(line), rpcLine.FindStringSubmatch(line); {
		case f != nil:
			found[scope+": "+f[1]+last(f[2])+" "+f[3]+" = "+f[4]] = true
		case v != nil:
			found[scope+": "+v[1]+" = "+v[2]] = true
		case r != nil:
			found["rpc "+r[1]+" "+r[2]+r[3]+" "+r[4]+r[5]] = true
		default:
			t.Errorf("cannot read %q", line)
		}
	}
	return found
}

func names(within []string) (list []string) {
	for _, n := range within {
		if n != "" {
			list = append(list, n)
		}
	}
	return list
}

func join(scope, name string) string { return strings.TrimPrefix(scope+"."+name, ".") }

// last returns the last part of a name.
func last(name string) string { return name[strings.LastIndex(name, ".")+1:] }

func descriptions(f protoreflect.FileDescriptor) map[string]bool {
	found := map[string]bool{}
	messages(found, f.Messages())
	for e := range all(f.Enums()) {
		found["enum "+string(e.Name())] = true
		for v := range all(e.Values()) {
			found[string(e.Name())+": "+string(v.Name())+" = "+strconv.Itoa(int(v.Number()))] = true
		}
	}
	for s := range all(f.Services()) {
		found["service "+string(s.Name())] = true
		for m := range all(s.Methods()) {
			found["rpc "+string(m.Name())+" "+stream(m.IsStreamingClient())+string(m.Input().Name())+" "+stream(m.IsStreamingServer())+string(m.Output().Name())] = true
		}
	}
	return found
}

func stream(is bool) string {
	if is {
		return "stream "
	}
	return ""
}

// all goes through a list of descriptors.
func all[D any](list interface {
	Len() int
	Get(int) D
}) func(yield func(D) bool) {
	return func(yield func(D) bool) {
		for i := range list.Len() {
			if !yield(list.Get(i)) {
				return
			}
		}
	}
}

func messages(found map[string]bool, list protoreflect.MessageDescriptors) {
	for m := range all(list) {
		if m.IsMapEntry() {
			continue
		}
		name := strings.TrimPrefix(string(m.FullName()), "inference.")
		found["message "+name] = true
		for f := range all(m.Fields()) {
			found[name+": "+typeOf(f)+" "+string(f.Name())+" = "+strconv.Itoa(int(f.Number()))] = true
		}
		messages(found, m.Messages())
	}
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
