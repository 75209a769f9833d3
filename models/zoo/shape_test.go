package zoo

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/models"
)

// shapes follows images through a network and reports what does not fit.
type shapes struct {
	t     *testing.T
	sizes map[string][]int64 // of one image: channels, height, width, or numbers in a row
}

// TestImageShapes computes the size of every value of the image networks, and
// compares the last one before the classifier.
func TestImageShapes(t *testing.T) {
	for name, want := range map[string][]int64{
		"resnet50":     {2048, 7, 7},
		"resnet101":    {2048, 7, 7},
		"resnet152":    {2048, 7, 7},
		"inception_v3": {2048, 8, 8},
		"vgg16":        {512, 7, 7},
		"vgg19":        {512, 7, 7},
		"tiny_cnn":     {16, 16, 16},
	} {
		t.Run(name, func(t *testing.T) {
			g := lookup(t, name).graph()
			s := shapes{t, make(map[string][]int64)}
			for _, tensor := range g.tensors {
				s.sizes[tensor.name] = tensor.dims
			}
			for _, d := range g.inputs[0].Type.Shape[1:] {
				s.sizes["input"] = append(s.sizes["input"], d.Value)
			}
			var last []int64
			for _, n := range g.nodes {
				out := s.after(n)
				if out == nil {
					t.Fatalf("%s does not fit its inputs", n.name)
				}
				if len(out) == 3 && out[1] > 1 {
					last = out
				}
				s.sizes[n.outputs[0]] = out
			}
			if !slices.Equal(last, want) {
				t.Errorf("the last images are %v, want %v", last, want)
			}
			if got := s.sizes["output"]; len(got) != 1 || got[0] != g.outputs[0].Type.Shape[1].Value {
				t.Errorf("the output has %v numbers", got)
			}
		})
	}
}

// after returns the size that n makes, nil if its inputs do not fit.
func (s shapes) after(n node) []int64 {
	in := s.sizes[n.inputs[0]]
	switch n.op {
	case "Conv":
		if weight := s.sizes[n.inputs[1]]; weight[1] == in[0] && slices.Equal(weight[2:], ints(n, "kernel_shape")) {
			return slide(n, in, weight[0])
		}
	case "MaxPool", "AveragePool":
		return slide(n, in, in[0])
	case "BatchNormalization":
		for _, name := range n.inputs[1:] {
			if !slices.Equal(s.sizes[name], in[:1]) {
				return nil
			}
		}
		return in
	case "Relu":
		return in
	case "Add":
		if slices.Equal(in, s.sizes[n.inputs[1]]) {
			return in
		}
	case "Concat":
		return s.joined(n)
	case "GlobalAveragePool":
		return []int64{in[0], 1, 1}
	case "Flatten":
		return []int64{in[0] * in[1] * in[2]}
	case "Gemm":
		if weight := s.sizes[n.inputs[1]]; weight[1] == in[0] {
			return weight[:1]
		}
	default:
		s.t.Errorf("%s is of type %s", n.name, n.op)
	}
	return nil
}

func (s shapes) joined(n node) []int64 {
	out := slices.Clone(s.sizes[n.inputs[0]])
	for _, name := range n.inputs[1:] {
		part := s.sizes[name]
		if !slices.Equal(part[1:], out[1:]) {
			return nil
		}
		out[0] += part[0]
	}
	return out
}

// slide returns the size after a window has passed over in.
func slide(n node, in []int64, channels int64) []int64 {
	kernel, pads, strides := ints(n, "kernel_shape"), ints(n, "pads"), ints(n, "strides")
	out := []int64{channels}
	for axis := range 2 {
		room := in[1+axis] + pads[axis] + pads[2+axis] - kernel[axis]
		out = append(out, room/strides[axis]+1)
	}
	return out
}

func ints(n node, name string) (list []int64) {
	for _, a := range n.attrs {
		rest, ours := bytes.CutPrefix(a, models.AppendString(nil, 1, name))
		for ours && len(rest) > 0 {
			num, _, n := protowire.ConsumeTag(rest)
			v, m := protowire.ConsumeVarint(rest[n:])
			if rest = rest[n+m:]; num == 8 {
				list = append(list, int64(v))
			}
		}
	}
	if list == nil {
		panic(fmt.Sprintf("%s has no attribute %s", n.name, name))
	}
	return list
}
