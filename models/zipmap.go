package models

import "fmt"

// mlDomain is the domain of ONNX's operators for classical machine learning.
const mlDomain = "ai.onnx.ml"

// dropZipMaps replaces each ZipMap whose output is an output of the model by an Identity.
// Converters of scikit-learn append a ZipMap to a classifier. It converts a row of
// probabilities into a map from class to probability, which the inference protocol cannot
// carry. The model then outputs the ZipMap's input, a tensor with one column for each class.
func dropZipMaps(f *File) {
	g := &f.Graph
	used := map[string]bool{}
	for i := range g.Nodes {
		for _, names := range [][]string{g.Nodes[i].Inputs, g.Nodes[i].Captures} {
			for _, name := range names {
				used[name] = true
			}
		}
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.OpType != "ZipMap" || n.Domain != mlDomain || len(n.Inputs) != 1 || len(n.Outputs) != 1 || used[n.Outputs[0]] {
			continue
		}
		in, name := n.Inputs[0], n.Outputs[0]
		classes, labels := zipMapClasses(n.Raw)
		for j := range g.Outputs {
			if g.Outputs[j].Name != name || classes == 0 {
				continue
			}
			t := TensorType(Float32, Dim{Value: -1}, Dim{Value: classes})
			g.Outputs[j] = valueInfo{Name: name, Type: t, Raw: AppendValueInfo(nil, name, t)}
			*n = Node{Raw: Identity(in, name), OpType: "Identity", Inputs: n.Inputs, Outputs: n.Outputs}
			f.Changes = append(f.Changes, fmt.Sprintf("output %s is a tensor of probabilities instead of a sequence of maps (its ZipMap is removed); its %d columns are the classes %s",
				quote(name), classes, labels))
		}
	}
}

// zipMapClasses returns the number of classes of a ZipMap and lists the first of them. The
// parser has already checked node, so faults are not handled here.
func zipMapClasses(node []byte) (classes int64, labels string) {
	const maxLabels = 20
	add := func(label string) bool {
		if classes++; classes <= maxLabels {
			labels += ", " + label
		} else if classes == maxLabels+1 {
			labels += ", …"
		}
		return true
	}
	n := message{rest: node}
	for n.next() {
		if n.num != 5 {
			continue
		}
		a := message{rest: n.bytes}
		for a.next() {
			switch a.num {
			case 8: // classlabels_int64s
				a.ints(func(i int64) bool { return add(fmt.Sprint(i)) })
			case 9: // classlabels_strings
				add(quote(string(a.body())))
			}
		}
	}
	if len(labels) > 0 {
		labels = labels[len(", "):]
	}
	return classes, labels
}
