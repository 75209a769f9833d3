package models

import "fmt"

// mlDomain is the domain of ONNX's operators for what is not a neural network.
const mlDomain = "ai.onnx.ml"

// dropZipMaps replaces each ZipMap that makes an output of the model by an Identity.
// Converters of scikit-learn put it behind a classifier: it turns a row of
// probabilities into a map from the class to its probability, which no request can
// carry. Its input, a tensor with a column for each class, becomes the output.
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
			t := Tensor(Float32, Dim{Value: -1}, Dim{Value: classes})
			g.Outputs[j] = valueInfo{Name: name, Type: t, Raw: AppendValueInfo(nil, name, t)}
			*n = Node{Raw: Identity(in, name), OpType: "Identity", Inputs: n.Inputs, Outputs: n.Outputs}
			f.Changes = append(f.Changes, fmt.Sprintf("output %s is a tensor of probabilities instead of a sequence of maps (its ZipMap is left out); its %d columns are the classes %s",
				quote(name), classes, labels))
		}
	}
}

// zipMapClasses returns how many classes a ZipMap has, and the first of them in words.
// Its bytes were read before.
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
