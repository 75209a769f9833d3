package segments

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
)

// ONNX Runtime's CUDA kernel of Conv keeps one plan of cuDNN, for the shape of its last
// call, and builds another one whenever the batch size changes. FusedConv, an operator of
// its own domain, keeps the algorithm of each shape, but ONNX Runtime no longer makes it
// for CUDA. So it is made here, of what it stands for: Conv and Relu, or Conv, Add and
// Relu. Its kernels take float32 only.

// microsoft is the domain of ONNX Runtime's own operators.
const microsoft = "com.microsoft"

// convChain is a convolution and what happens to its result until it has gone through a Relu.
type convChain struct {
	conv, relu int    // nodes
	add        int    // the node between them, -1 if there is none
	sum        string // what that adds to the result
}

// fuser finds chains in a graph.
type fuser struct {
	nodes   []models.Node
	maker   map[string]int // by value, the node that makes it
	uses    map[string]int // by value, by how many nodes and outputs of the graph it is used
	weights map[string]*models.Initializer
}

// fuseConvolutions replaces each chain in the parts of f by a FusedConv. The shapes are
// asked of ONNX Runtime: it adds tensors of one shape only, while Add may repeat one.
func fuseConvolutions(env *ort.Env, d device, parts *models.Parts, f *models.File) (fused bool, err error) {
	g := &f.Graph
	u := fuser{g.Nodes, map[string]int{}, map[string]int{}, map[string]*models.Initializer{}}
	for i := range g.Initializers {
		u.weights[g.Initializers[i].Name] = &g.Initializers[i]
	}
	for i := range g.Nodes {
		for _, name := range g.Nodes[i].Outputs {
			u.maker[name] = i
		}
		for _, name := range slices.Concat(g.Nodes[i].Inputs, g.Nodes[i].Captures) {
			u.uses[name]++
		}
	}
	for _, out := range g.Outputs {
		u.uses[out.Name]++
	}
	chains, added := u.chains()
	shapes, err := shapesOf(env, d, f, added)
	if err != nil {
		return false, err
	}
	for _, c := range chains {
		if c.add < 0 || sameShape(shapes[u.nodes[c.conv].Outputs[0]], shapes[c.sum]) {
			u.replace(parts, c)
			fused = true
		}
	}
	if !fused {
		return false, nil
	}
	parts.Nodes = slices.DeleteFunc(parts.Nodes, func(raw []byte) bool { return raw == nil })
	if !slices.ContainsFunc(parts.Opsets, func(raw []byte) bool { return slices.Equal(raw, microsoftOpset) }) {
		parts.Opsets = append(slices.Clip(parts.Opsets), microsoftOpset)
	}
	return true, nil
}

// microsoftOpset is the OperatorSetIdProto that ONNX Runtime writes for its domain.
var microsoftOpset = models.AppendInt(models.AppendString(nil, 1, microsoft), 2, 1)

// chains returns all chains, and the values whose shapes decide about some of them.
func (u *fuser) chains() (chains []convChain, added []string) {
	for r := range u.nodes {
		if !is(&u.nodes[r], "Relu") {
			continue
		}
		last, ok := u.only(u.nodes[r].Inputs[0])
		switch {
		case !ok:
		case u.fusible(last):
			chains = append(chains, convChain{conv: last, relu: r, add: -1})
		case is(&u.nodes[last], "Add"):
			if c, ok := u.sum(last); ok {
				c.relu = r
				chains, added = append(chains, c), append(added, u.nodes[c.conv].Outputs[0], c.sum)
			}
		}
	}
	return chains, added
}

// sum returns the chain that ends in an Add. If it adds two convolutions, that is the
// later one, and the other stays as it is.
func (u *fuser) sum(add int) (c convChain, ok bool) {
	in := u.nodes[add].Inputs
	for i := range in {
		if conv, only := u.only(in[i]); only && u.fusible(conv) && (!ok || conv > c.conv) {
			c, ok = convChain{conv: conv, add: add, sum: in[1-i]}, true
		}
	}
	return c, ok
}

// only returns the node that makes a value, if a single node uses it and the graph does
// not give it out.
func (u *fuser) only(name string) (int, bool) {
	by, ok := u.maker[name]
	return by, ok && u.uses[name] == 1
}

func is(n *models.Node, op string) bool { return defaultDomain(n.Domain) && n.OpType == op }

// isConv reports whether a node is a convolution of ONNX's own.
func isConv(n *models.Node) bool { return is(n, "Conv") || is(n, "ConvTranspose") }

// fusible reports whether a node is a convolution that CUDA's FusedConv takes: one of
// images, of float32, with weights that are known, and as much padding on both sides,
// without which the kernel computes more than it gives out, and cannot add to it.
func (u *fuser) fusible(node int) bool {
	n := &u.nodes[node]
	if !is(n, "Conv") || len(n.Outputs) != 1 || len(n.Inputs) < 2 {
		return false
	}
	w := u.weights[n.Inputs[1]]
	const imageWeights = 4 // dimensions: of outputs, of inputs, height and width
	if w == nil || w.Sparse || w.Type != models.Float32 || len(w.Dims) != imageWeights {
		return false
	}
	ok := true
	fields(n.Raw, 5, func(attribute []byte) {
		var name, text string
		var pads []int64
		fields(attribute, 1, func(b []byte) { name = string(b) })
		fields(attribute, 4, func(b []byte) { text = string(b) })
		fields(attribute, 8, func(b []byte) {
			for len(b) > 0 {
				v, size := protowire.ConsumeVarint(b)
				pads, b = append(pads, int64(v)), b[max(size, 1):]
			}
		})
		switch half := len(pads) / 2; name {
		case "pads":
			ok = ok && slices.Equal(pads[:half], pads[half:])
		case "auto_pad":
			ok = ok && (text == "NOTSET" || text == "VALID")
		}
	})
	return ok
}

// fields calls each for every occurrence of a field of a message that has been read
// before, with its bytes; a number is given as the bytes of its varint.
func fields(message []byte, field protowire.Number, each func(value []byte)) {
	for len(message) > 0 {
		num, typ, tag := protowire.ConsumeTag(message)
		size := protowire.ConsumeFieldValue(num, typ, message[max(tag, 0):])
		if tag < 0 || size < 0 {
			return
		}
		value := message[tag : tag+size]
		if typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		if num == field {
			each(value)
		}
		message = message[tag+size:]
	}
}

// shapesOf returns the shapes of values of the graph of f, as ONNX Runtime infers them.
// Dimensions of inputs that have no name get one, so that equal ones can be told.
func shapesOf(env *ort.Env, d device, f *models.File, values []string) (map[string][]models.Dim, error) {
	shapes := map[string][]models.Dim{}
	if len(values) == 0 {
		return shapes, nil
	}
	parts := f.Parts()
	for i, in := range f.Graph.Inputs {
		t := in.Type
		t.Shape = slices.Clone(t.Shape)
		for j := range t.Shape {
			if !t.Shape[j].Fixed() && t.Shape[j].Name == "" {
				t.Shape[j].Name = fmt.Sprintf("dimension %d of input %d", j, i)
			}
		}
		parts.Inputs[i] = models.AppendValueInfo(nil, in.Name, t)
	}
	known := map[string]bool{}
	for _, out := range f.Graph.Outputs {
		known[out.Name] = true
	}
	for _, name := range values {
		if !known[name] {
			known[name] = true
			parts.Outputs = append(parts.Outputs, models.AppendValueInfo(nil, name, models.Type{}))
		}
	}
	options := ort.SessionOptions{Folder: f.Folder()}
	d.Session(&options, false)
	s, err := env.NewSession(parts.Append(make([]byte, 0, parts.Size())), options)
	if err != nil {
		return nil, fmt.Errorf("%s: ONNX Runtime cannot tell the shapes of what convolutions are added to: %w", f.Path, err)
	}
	for _, out := range s.Outputs() {
		shapes[out.Name] = out.Dims
	}
	return shapes, s.Close()
}

// sameShape reports whether two tensors have the same shape in each run.
func sameShape(a, b []models.Dim) bool {
	return len(a) > 0 && slices.EqualFunc(a, b, func(x, y models.Dim) bool {
		return x == y && (x.Fixed() || x.Name != "")
	})
}

// replace puts a FusedConv in the place of the last node of a chain, where all that it
// uses has been made. It has the name of the convolution.
func (u *fuser) replace(parts *models.Parts, c convChain) {
	conv := &u.nodes[c.conv]
	var raw []byte
	for _, name := range append(slices.Clip(conv.Inputs[:2]), u.bias(parts, conv)) {
		raw = models.AppendString(raw, 1, name)
	}
	if c.add >= 0 {
		raw = models.AppendString(raw, 1, c.sum)
		parts.Nodes[c.add] = nil
	}
	raw = models.AppendString(raw, 2, u.nodes[c.relu].Outputs[0])
	raw = models.AppendString(models.AppendString(raw, 3, conv.Name), 4, "FusedConv")
	fields(conv.Raw, 5, func(attribute []byte) { raw = models.AppendField(raw, 5, attribute) })
	const text = 3 // the kind of attribute
	activation := models.AppendString(models.AppendString(nil, 1, "activation"), 4, "Relu")
	raw = models.AppendField(raw, 5, models.AppendInt(activation, 20, text))
	parts.Nodes[c.conv], parts.Nodes[c.relu] = nil, models.AppendString(raw, 7, microsoft)
}

// bias returns the name of a convolution's bias. One that has none gets zeros: CUDA's
// FusedConv reads a bias that is left out where something is added, and allocates one
// for each new shape, which waits for the GPU, where nothing is.
func (u *fuser) bias(parts *models.Parts, conv *models.Node) string {
	if len(conv.Inputs) > 2 && conv.Inputs[2] != "" {
		return conv.Inputs[2]
	}
	name, channels := conv.Outputs[0]+"/overlapd_bias", u.weights[conv.Inputs[1]].Dims[0]
	tensor := models.AppendInt(models.AppendInt(nil, 1, channels), 2, int64(models.Float32))
	zeros := make([]byte, channels*int64(models.Float32.Bytes()))
	parts.Initializers = append(parts.Initializers, models.AppendField(models.AppendString(tensor, 8, name), 9, zeros))
	return name
}
