package query

import (
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// Limits on the interface of a model. MaxRank bounds the array in [Input].
const (
	MaxRank  = 8   // dimensions of a tensor
	maxPorts = 256 // inputs of a model, and outputs
)

// Info is what a worker reports about its model. Cut says how the number of operators was
// chosen, and is "" if the configuration sets it. Hash is the SHA-256 of the model file in
// hex. Platform is OnnxPlatform or "emulated". Device is the name of the device.
type Info struct {
	Inputs    []models.TensorSpec
	Outputs   []models.TensorSpec
	Operators int
	Cut       string
	Hash      string
	Platform  string
	Device    string
	Versions  map[string]string
}

// OnnxPlatform is Triton's name for the platform of an ONNX model: its backend and the file
// format.
const OnnxPlatform = "onnxruntime_onnx"

// Signature is what requests to a service are checked against, derived from the Info of a
// worker. It is immutable. Batched is set if the first dimension of all ports is a batch
// dimension that clients choose.
type Signature struct {
	Inputs  []Port
	Outputs []Port
	Batched bool
	Info    Info

	// links is the number of distinct names among the open dimensions of the inputs.
	links int

	// seq is the dimension that holds the sequence length.
	seq seqs
}

// seqs identifies the dimension that is the sequence length: the first open one that is not
// the batch dimension. input is -1 if there is none.
type seqs struct{ input, dim int }

// Port is an input or output of a model. A dimension is -1 where it is open. AnyRank is
// set, and Dims empty, if the model leaves the rank open.
type Port struct {
	Name    string
	Type    models.DataType
	AnyRank bool
	Dims    []int64

	// link has the number of each dimension's name, or -1 if it has none.
	link []int
}

// newSignature validates the interface of a model. Errors begin with the name of the
// service.
func newSignature(service string, i Info) (*Signature, error) {
	sig := &Signature{seq: seqs{input: -1}, Info: i}
	if len(i.Inputs) > maxPorts || len(i.Outputs) > maxPorts {
		return nil, fmt.Errorf("%s: %d inputs and %d outputs, and the limit is %d of each",
			service, len(i.Inputs), len(i.Outputs), maxPorts)
	}
	names := map[string]int{}
	var err error
	if sig.Inputs, err = newPorts(i.Inputs, names); err != nil {
		return nil, fmt.Errorf("%s: input %w", service, err)
	}
	// Only names among inputs are counted: outputs are not checked against them.
	sig.links = len(names)
	if sig.Outputs, err = newPorts(i.Outputs, names); err != nil {
		return nil, fmt.Errorf("%s: output %w", service, err)
	}
	sig.Batched = sig.unbatched() == ""
	sig.seq = findSeq(sig.Inputs, sig.Batched)
	return sig, nil
}

// newPorts converts specs to ports and numbers the names of their dimensions in names.
func newPorts(specs []models.TensorSpec, names map[string]int) (list []Port, err error) {
	for _, spec := range specs {
		p, err := newPort(spec, names)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

func newPort(spec models.TensorSpec, names map[string]int) (Port, error) {
	t := spec.Type
	if t.Kind != models.KindTensor || t.Elem.Protocol() == "" {
		return Port{}, fmt.Errorf("%q: the protocol does not support %s", spec.Name, t)
	}
	if len(t.Shape) > MaxRank {
		return Port{}, fmt.Errorf("%q: rank %d, and the limit is %d", spec.Name, len(t.Shape), MaxRank)
	}
	p := Port{Name: spec.Name, Type: t.Elem, AnyRank: !t.HasShape}
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
		p.Dims = append(p.Dims, value)
		p.link = append(p.link, link)
	}
	return p, nil
}

// unbatched returns why the ports do not share a batch dimension that clients choose, or ""
// if they do. Exporters often name the batch dimension of outputs differently, so only the
// names of inputs are compared.
func (s *Signature) unbatched() string {
	if len(s.Inputs) == 0 {
		return "it has no inputs"
	}
	for i, p := range slices.Concat(s.Inputs, s.Outputs) {
		what := "input"
		if i >= len(s.Inputs) {
			what = "output"
		}
		switch {
		case p.AnyRank:
			return fmt.Sprintf("the file does not specify the shape of its %s %q", what, p.Name)
		case len(p.Dims) == 0:
			return fmt.Sprintf("its %s %q has no dimensions", what, p.Name)
		case p.Dims[0] >= 0:
			return fmt.Sprintf("the first dimension of its %s %q is fixed at %d", what, p.Name, p.Dims[0])
		}
	}
	for _, p := range s.Inputs {
		if p.link[0] != s.Inputs[0].link[0] {
			return fmt.Sprintf("the first dimensions of its inputs %q and %q have different names", s.Inputs[0].Name, p.Name)
		}
	}
	return ""
}

// CheckModel returns the signature of a model with these inputs and outputs. It fails if
// the protocols cannot carry them, or if maxBatch asks for dynamic batching and the model
// has no batch dimension. Errors begin with name.
func CheckModel(name string, inputs, outputs []models.TensorSpec, maxBatch int) (*Signature, error) {
	sig, err := newSignature(name, Info{Inputs: inputs, Outputs: outputs})
	if err != nil || maxBatch <= 1 {
		return sig, err
	}
	if why := sig.unbatched(); why != "" {
		return nil, fmt.Errorf("%s: max_batch is %d, but its queries cannot be batched: %s; leave max_batch out, or export the model with one open batch dimension for all inputs and outputs",
			name, maxBatch, why)
	}
	return sig, nil
}

// findSeq finds the dimension that is the sequence length, see seqs.
func findSeq(inputs []Port, batched bool) seqs {
	for i := range inputs {
		for d, value := range inputs[i].Dims {
			if value < 0 && (d > 0 || !batched) {
				return seqs{i, d}
			}
		}
	}
	return seqs{input: -1}
}

// Find returns the index of the port with this name, or -1.
func Find(ports []Port, name []byte) int {
	for i := range ports {
		if ports[i].Name == string(name) {
			return i
		}
	}
	return -1
}

// Differs returns an error if clients could tell the two models apart by their inputs or
// outputs. Variants of a service must not differ. Names of dimensions do not matter.
func (s *Signature) Differs(other *Signature) error {
	differs := func(format string, args ...any) error {
		return fmt.Errorf("variants of a service must have the same inputs and outputs, but "+format, args...)
	}
	for _, side := range []struct {
		what       string
		first, own []Port
	}{{"input", s.Inputs, other.Inputs}, {"output", s.Outputs, other.Outputs}} {
		if len(side.first) != len(side.own) {
			return differs("this one has %d %ss, the first %d", len(side.own), side.what, len(side.first))
		}
		for i := range side.first {
			if first, own := side.first[i].text(), side.own[i].text(); first != own {
				return differs("%s %d of this one is %s, of the first %s", side.what, i, own, first)
			}
		}
	}
	if s.Batched != other.Batched {
		return differs("queries of only one of the two can be batched: %s", s.unbatched()+other.unbatched()) // one is ""
	}
	return nil
}

// text describes the port for an error.
func (p *Port) text() string {
	shape := fmt.Sprint(p.Dims)
	if p.AnyRank {
		shape = "of any shape"
	}
	return fmt.Sprintf("%q %s %s", p.Name, p.Type.Protocol(), shape)
}
