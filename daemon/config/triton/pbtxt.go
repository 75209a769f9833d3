package triton

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// field is a field that inference.proto does not declare, with the line of its first
// occurrence.
type field struct {
	name string
	line int
}

// unsupported says why overlapd cannot serve a model although the model is valid.
type unsupported string

// Error implements error.
func (u unsupported) Error() string { return string(u) }

// essential lists undeclared fields without which a model would give other answers, and why
// overlapd does not support them. All other undeclared fields only affect performance or
// what is reported about the model.
var essential = map[string]string{
	"batch_input":             "the model needs inputs that the server creates",
	"batch_output":            "the model needs outputs that the server splits",
	"ensemble_scheduling":     "an ensemble is not a model; it calls other models, which clients can do",
	"is_non_linear_format_io": "only TensorRT reads this format",
	"is_shape_tensor":         "only TensorRT reads this format",
	"model_repository_agents": "an agent would have to change the files first",
	"reshape":                 "clients send another shape than the model takes; export the model with the shape of its clients",
	"sequence_batching":       "requests of a sequence would have to be kept together",
}

// ineffective lists Triton's other undeclared fields. They have no effect in overlapd.
var ineffective = []string{
	"cc_model_filenames", "default_priority_level", "gpus", "host_policy", "label_filename", "max_queue_delay_microseconds", "metric_tags", "model_metrics",
	"model_warmup", "optimization", "optional", "passive", "preferred_batch_size", "preserve_ordering", "priority_levels", "priority_queue_policy", "profile", "rate_limiter",
	"response_cache", "runtime", "secondary_devices",
}

// fieldNames returns all fields that Triton has, to suggest one for a misspelt name.
func fieldNames() []string {
	names := slices.AppendSeq(slices.Clone(ineffective), maps.Keys(essential))
	var add func(protoreflect.MessageDescriptor)
	add = func(m protoreflect.MessageDescriptor) {
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if names = append(names, string(f.Name())); f.Message() != nil && !f.IsMap() {
				add(f.Message())
			}
		}
	}
	add(new(inference.ModelConfig).ProtoReflect().Descriptor())
	slices.Sort(names)
	return names
}

// maxUndeclared limits the number of undeclared fields in a file. parse reads the file
// again for each.
const maxUndeclared = 64

// undeclared matches prototext's error for an undeclared field, and faultLine the line in
// its errors. Parsing the error is necessary because the option to discard such fields does
// not report them.
var (
	undeclared = regexp.MustCompile(`\(line \d+:\d+\): unknown field: (\w+)$`)
	faultLine  = regexp.MustCompile(`\(line (\d+):\d+\)`)
)

// parse parses a config.pbtxt. It also returns the fields that inference.proto does not
// declare, without fields nested in them, and the line of an error.
//
// prototext skips fields with reserved names and reports the first that is neither declared
// nor reserved. So parse reserves each reported field and reads the file again.
func parse(text []byte) (c *inference.ModelConfig, others []field, line int, err error) {
	c = new(inference.ModelConfig)
	schema := protodesc.ToFileDescriptorProto(inference.File_inference_proto)
	for {
		err = unmarshal(text, schema, c)
		if err == nil {
			return c, others, 0, nil
		}
		// Not every error has a line.
		if m := faultLine.FindStringSubmatch(err.Error()); m != nil {
			line, _ = strconv.Atoi(m[1])
		}
		m := undeclared.FindStringSubmatch(err.Error())
		switch {
		case m == nil:
			return nil, others, line, fmt.Errorf("%s cannot be read: %w", configFile, err)
		case len(others) == maxUndeclared:
			return nil, others, line, errors.New("it has too many fields that are unknown to overlapd")
		}
		others = append(others, field{m[1], line})
		reserve(schema.MessageType, m[1])
	}
}

// unmarshal parses the text with a schema that may reserve more names than that of c. Going
// through the wire format converts between the two schemas.
func unmarshal(text []byte, schema *descriptorpb.FileDescriptorProto, c *inference.ModelConfig) error {
	file, err := protodesc.NewFile(schema, nil)
	if err != nil {
		return err
	}
	m := dynamicpb.NewMessage(file.Messages().ByName(protoreflect.Name("ModelConfig")))
	if err := prototext.Unmarshal(text, m); err != nil {
		return err
	}
	wire, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return proto.Unmarshal(wire, c)
}

// reserve reserves a field name in all messages that do not declare it.
func reserve(messages []*descriptorpb.DescriptorProto, name string) {
	for _, m := range messages {
		reserve(m.NestedType, name)
		// Entries of maps are generated messages, which must not have reserved names.
		declared := m.GetOptions().GetMapEntry()
		for _, f := range m.Field {
			declared = declared || f.GetName() == name
		}
		if !declared {
			m.ReservedName = append(m.ReservedName, name)
		}
	}
}
