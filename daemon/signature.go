package daemon

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/models"
)

// Limits on what a model may look like from outside.
const (
	maxRank  = 8   // dimensions of a tensor
	maxPorts = 256 // inputs, and outputs, of a model
)

// onnxPlatform is what runs a model unless the device is emulated, in Triton's
// words: its backend, and the form of the file.
const onnxPlatform = "onnxruntime_onnx"

// signature is what a request to a service is checked against, and the
// answers that follow from the model alone, ready to be sent.
type signature struct {
	inputs  []port
	outputs []port
	batched bool
	links   int  // distinct names among the inputs' dimensions that are not fixed
	seq     seqs // where the sequence length is read

	info     Info   // that it was made of
	metadata []byte // answer to /v2/models/M
	config   []byte // answer to /v2/models/M/config
}

// seqs says which dimension of which input is the sequence length: the first
// that is neither fixed nor the batch dimension. input is -1 if there is none.
type seqs struct{ input, dim int }

// port is an input or output of a model.
type port struct {
	name    string
	typ     models.DataType
	anyRank bool    // the model does not say; dims is then empty
	dims    []int64 // -1 where not fixed
	link    []int   // number of the dimension's name, -1 without one
	head    []byte  // start of its JSON object in an answer
}

func newSignature(s *Service, i Info) (*signature, error) {
	sig := &signature{seq: seqs{input: -1}, info: i}
	if len(i.Inputs) > maxPorts || len(i.Outputs) > maxPorts {
		return nil, fmt.Errorf("%s: %d inputs and %d outputs, the limit is %d of each",
			s.Name, len(i.Inputs), len(i.Outputs), maxPorts)
	}
	names := map[string]int{}
	for _, spec := range i.Inputs {
		p, err := newPort(spec, names)
		if err != nil {
			return nil, fmt.Errorf("%s: input %w", s.Name, err)
		}
		sig.inputs = append(sig.inputs, p)
	}
	sig.links = len(names)
	for _, spec := range i.Outputs {
		p, err := newPort(spec, map[string]int{})
		if err != nil {
			return nil, fmt.Errorf("%s: output %w", s.Name, err)
		}
		sig.outputs = append(sig.outputs, p)
	}
	sig.batched = batched(sig.inputs, sig.outputs)
	sig.seq = findSeq(sig.inputs, sig.batched)
	sig.metadata = appendMetadata(nil, s, sig, i)
	sig.config = appendModelConfig(nil, s, sig, i)
	return sig, nil
}

func newPort(spec models.TensorSpec, names map[string]int) (port, error) {
	t := spec.Type
	if t.Kind != models.KindTensor || t.Elem.Protocol() == "" {
		return port{}, fmt.Errorf("%q: the protocol cannot carry %s", spec.Name, t)
	}
	if len(t.Shape) > maxRank {
		return port{}, fmt.Errorf("%q: rank %d, the limit is %d", spec.Name, len(t.Shape), maxRank)
	}
	p := port{name: spec.Name, typ: t.Elem, anyRank: !t.HasShape}
	for _, d := range t.Shape {
		value, link := d.Value, -1
		if !d.Fixed() {
			value = -1
			if d.Name != "" {
				if _, seen := names[d.Name]; !seen {
					names[d.Name] = len(names)
				}
				link = names[d.Name]
			}
		}
		p.dims = append(p.dims, value)
		p.link = append(p.link, link)
	}
	p.head = append(appendString([]byte(`{"name":`), p.name), `,"datatype":"`+t.Elem.Protocol()+`","shape":[`...)
	return p, nil
}

// batched reports whether the ports share a first dimension that the client
// chooses. Outputs of exported models often give it another name, so only the
// names of inputs are compared.
func batched(inputs, outputs []port) bool {
	if len(inputs) == 0 {
		return false
	}
	for _, ports := range [][]port{inputs, outputs} {
		for i := range ports {
			if len(ports[i].dims) == 0 || ports[i].dims[0] >= 0 {
				return false
			}
		}
	}
	for i := range inputs {
		if inputs[i].link[0] != inputs[0].link[0] {
			return false
		}
	}
	return true
}

func findSeq(inputs []port, batched bool) seqs {
	for i := range inputs {
		for d, value := range inputs[i].dims {
			if value < 0 && (d > 0 || !batched) {
				return seqs{i, d}
			}
		}
	}
	return seqs{input: -1}
}

func findPort(ports []port, name []byte) int {
	for i := range ports {
		if ports[i].name == string(name) {
			return i
		}
	}
	return -1
}

func appendMetadata(b []byte, s *Service, sig *signature, i Info) []byte {
	b = appendString(append(b, `{"name":`...), s.Name)
	b = appendString(append(b, `,"versions":["`+modelVersion+`"],"platform":`...), i.Platform)
	b = appendPorts(append(b, `,"inputs":[`...), sig.inputs)
	b = appendPorts(append(b, `],"outputs":[`...), sig.outputs)
	return append(b, `]}`...)
}

func appendPorts(b []byte, ports []port) []byte {
	for n, p := range ports {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(b, p.head...)
		if p.anyRank {
			b = append(b, "-1"...)
		}
		b = append(appendDims(b, p.dims), `]}`...)
	}
	return b
}

func appendDims(b []byte, dims []int64) []byte {
	for n, d := range dims {
		if n > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	return b
}

// appendModelConfig writes the model configuration as Triton's clients read
// it: dimensions without the batch dimension where the model has one.
func appendModelConfig(b []byte, s *Service, sig *signature, i Info) []byte {
	limit := 0
	if sig.batched {
		limit = s.MaxQueryBatch
	}
	b = appendString(append(b, `{"name":`...), s.Name)
	b = appendString(append(b, `,"platform":`...), i.Platform)
	b = appendString(append(b, `,"backend":`...), strings.TrimSuffix(i.Platform, "_onnx"))
	b = append(b, `,"version_policy":{"latest":{"num_versions":1}},"max_batch_size":`...)
	b = strconv.AppendInt(b, int64(limit), 10)
	b = appendConfigPorts(append(b, `,"input":[`...), sig.inputs, sig.batched)
	b = appendConfigPorts(append(b, `],"output":[`...), sig.outputs, sig.batched)
	b = append(b, `],"model_transaction_policy":{"decoupled":false}`...)
	if sig.batched && s.MaxBatch > 1 {
		b = append(b, `,"dynamic_batching":{"preferred_batch_size":[],"max_queue_delay_microseconds":0}`...)
	}
	b = append(b, `,"parameters":{`...)
	for n, p := range s.configParameters(i) {
		if n > 0 {
			b = append(b, ',')
		}
		b = appendString(append(appendString(b, p.key), `:{"string_value":`...), p.value)
		b = append(b, '}')
	}
	return append(b, `}}`...)
}

// configParameter is what a model configuration says beyond Triton's fields.
type configParameter struct{ key, value string }

func (s *Service) configParameters(i Info) []configParameter {
	list := []configParameter{
		{"qos_target_us", strconv.FormatInt(s.QoSTarget.Microseconds(), 10)},
		{"queue_limit", strconv.Itoa(s.QueueLimit)},
		{"policy", s.Policy},
		{"device", i.Device},
		{"operators", strconv.Itoa(i.Operators)},
		{"sha256", i.Hash},
	}
	if i.Cut != "" {
		list = append(list, configParameter{"cut", i.Cut})
	}
	return list
}

func appendConfigPorts(b []byte, ports []port, batched bool) []byte {
	for n, p := range ports {
		if n > 0 {
			b = append(b, ',')
		}
		dims := p.dims
		if batched {
			dims = dims[1:]
		}
		b = appendString(append(b, `{"name":`...), p.name)
		b = append(b, `,"data_type":"`+configType(p.typ)+`","dims":[`...)
		if p.anyRank {
			b = append(b, "-1"...)
		}
		b = append(appendDims(b, dims), `]}`...)
	}
	return b
}

// configType returns the name of a type in a model configuration.
func configType(t models.DataType) string {
	if t == models.String {
		return "TYPE_STRING"
	}
	return "TYPE_" + t.Protocol()
}
