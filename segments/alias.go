package segments

import "github.com/overlapd/overlapd/models"

// Some operators need no memory of their own for their output. ONNX Runtime
// finds that out when it plans a whole graph; a session of one node cannot,
// because its inputs belong to the caller. So it is decided here, by giving
// the output the memory of an input: the kernels compare the two addresses and
// skip the copy.

// viewOps give their first input another shape and leave its bytes alone.
var viewOps = set("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")

// unaryOps and binaryOps compute each output element from the input elements
// at the same place, and may write it there.
var (
	unaryOps  = set("Abs", "Clip", "Exp", "LeakyRelu", "Neg", "Relu", "Sigmoid", "Sqrt", "Tanh")
	binaryOps = set("Add", "Div", "Mul", "Sub")
)

// reuse tells how the output of an operator may take the memory of an input.
type reuse struct {
	inputs []int // candidates, by position among the node's inputs
	view   bool  // the bytes stay: input and output may both live on
}

// sumInput is where the fused convolutions of ONNX Runtime take the residual
// that they add to their result.
const sumInput = 3

// reuseOf returns what n may reuse. An input that is overwritten must die at n
// and have exactly the size of the output.
func reuseOf(n *models.Node) reuse {
	switch {
	case n.Subgraphs:
	case defaultDomain(n.Domain) && viewOps[n.OpType]:
		return reuse{inputs: []int{0}, view: true}
	case defaultDomain(n.Domain) && unaryOps[n.OpType]:
		return reuse{inputs: []int{0}}
	case defaultDomain(n.Domain) && binaryOps[n.OpType]:
		return reuse{inputs: []int{0, 1}}
	case n.Domain == "com.microsoft.nchwc" && n.OpType == "Conv",
		n.Domain == "com.microsoft" && n.OpType == "FusedConv":
		return reuse{inputs: []int{sumInput}}
	}
	return reuse{}
}
