package segments

import "github.com/overlapd/overlapd/models"

// The memory plan of a batch is made once for each set of input shapes. A value may be part
// of the plan only if its shape follows from the input shapes alone. The tables below list
// the operators for which that is known. ONNX Runtime allocates the values of all other
// operators in each run, which is slower but always correct.

// pureOps are operators of the default domain whose output shapes follow from their
// attributes and the shapes of their inputs.
var pureOps = set(
	"Abs", "Acos", "Acosh", "Add", "And", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh",
	"Attention", "AveragePool", "BatchNormalization", "Bernoulli", "BitShift", "BitwiseAnd",
	"BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Concat",
	"Conv", "ConvInteger", "ConvTranspose", "Cos", "Cosh", "CumSum", "DeformConv", "DepthToSpace",
	"DequantizeLinear", "Det", "Div", "Dropout", "DynamicQuantizeLinear", "Einsum", "Elu", "Equal",
	"Erf", "Exp", "EyeLike", "Flatten", "Floor", "GRU", "Gather", "GatherElements", "GatherND",
	"Gelu", "Gemm", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "Greater",
	"GreaterOrEqual", "GridSample", "GroupNormalization", "HardSigmoid", "HardSwish", "Hardmax",
	"Identity", "InstanceNormalization", "IsInf", "IsNaN", "LRN", "LSTM", "LayerNormalization",
	"LeakyRelu", "Less", "LessOrEqual", "Log", "LogSoftmax", "LpNormalization", "LpPool", "MatMul",
	"MatMulInteger", "Max", "MaxPool", "MaxRoiPool", "Mean", "MeanVarianceNormalization", "Min",
	"Mish", "Mod", "Mul", "Neg", "NegativeLogLikelihoodLoss", "Not", "Or", "PRelu", "Pow",
	"QLinearConv", "QLinearMatMul", "QuantizeLinear", "RMSNormalization", "RNN", "RandomNormal",
	"RandomNormalLike", "RandomUniform", "RandomUniformLike", "Reciprocal", "Relu",
	"ReverseSequence", "RoiAlign", "Round", "ScatterElements", "ScatterND", "Selu", "Shape",
	"Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Size", "Softmax", "SoftmaxCrossEntropyLoss",
	"Softplus", "Softsign", "SpaceToDepth", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh",
	"ThresholdedRelu", "Transpose", "Trilu", "Where", "Xor",
	// ONNX Runtime inserts these between the host and a device.
	"MemcpyFromHost", "MemcpyToHost",
)

// shapedOps are operators of the default domain whose output shapes also depend on the
// contents of the listed inputs.
var shapedOps = map[string][]int{
	"AffineGrid":      {1},
	"CenterCropPad":   {1},
	"Col2Im":          {1, 2},
	"ConstantOfShape": {0},
	"Expand":          {1},
	"OneHot":          {1},
	"Pad":             {1, 3},
	"Range":           {0, 1, 2},
	"ReduceL1":        {1},
	"ReduceL2":        {1},
	"ReduceLogSum":    {1},
	"ReduceLogSumExp": {1},
	"ReduceMax":       {1},
	"ReduceMean":      {1},
	"ReduceMin":       {1},
	"ReduceProd":      {1},
	"ReduceSum":       {1},
	"ReduceSumSquare": {1},
	"Reshape":         {1},
	"Resize":          {1, 2, 3},
	"Slice":           {1, 2, 3, 4},
	"Split":           {1},
	"Squeeze":         {1},
	"Tile":            {1},
	"TopK":            {1},
	"Unsqueeze":       {1},
	"Upsample":        {1},
}

// microsoftOps are the operators of ONNX Runtime's own domain whose output shapes follow
// from their attributes and the shapes of their inputs. They include operators that its
// optimizer creates, and those in models that another tool has fused or quantized. The list
// omits operators whose output shapes depend on data, such as GroupQueryAttention,
// RelativePositionBias and RemovePadding, and search operators such as BeamSearch.
var microsoftOps = set(
	"Attention", "BiasAdd", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "ComplexMul",
	"DequantizeLinear", "DequantizeWithOrder", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "EmbedLayerNormalization",
	"FastGelu", "FusedConv", "FusedGemm", "FusedMatMul", "FusedMatMulActivation",
	"GatedRelativePositionBias", "Gelu", "GemmFastGelu", "GroupNorm", "Inverse",
	"LongformerAttention", "MatMulBnb4", "MatMulInteger16", "MatMulIntegerToFloat", "MatMulNBits",
	"MoE", "MultiHeadAttention", "NhwcConv", "NhwcFusedConv", "NhwcMaxPool", "PackedAttention",
	"PackedMultiHeadAttention", "QAttention", "QEmbedLayerNormalization", "QGemm", "QLinearAdd",
	"QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool",
	"QLinearLeakyRelu", "QLinearMul", "QLinearReduceMean", "QLinearSigmoid", "QLinearSoftmax",
	"QLinearWhere", "QMoE", "QuantizeLinear", "QuantizeWithOrder",
	"QOrderedAttention", "QOrderedGelu", "QOrderedLayerNormalization", "QOrderedMatMul", "QuickGelu",
	"RestorePadding", "RotaryEmbedding", "SimplifiedLayerNormalization", "SkipGroupNorm",
	"SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "TransposeMatMul", "Trilu",
)

// sharingOps store tensors in sequences and optionals. The uses of such a tensor do not
// show how long its memory is needed.
var sharingOps = set("Optional", "SequenceConstruct", "SequenceInsert", "SplitToSequence")

// pinningOps are operators whose GPU kernels may copy tables from pinned memory of the
// host: tables of tensors, of batches of matrices, or of lengths. ONNX Runtime allocates
// that memory in each run, and releases it only at the end of a run that synchronizes.
var pinningOps = set("Concat", "FusedMatMul", "GRU", "GatherND", "LSTM", "LongformerAttention", "MatMul",
	"NonMaxSuppression", "RNN", "ScatterND", "Split", "TransposeMatMul")

// randomOps return a different result in every run.
var randomOps = set("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike",
	"RandomUniform", "RandomUniformLike")

// set returns a set of names.
func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// defaultDomain reports whether a domain is that of the standard ONNX operators.
func defaultDomain(domain string) bool { return domain == "" || domain == "ai.onnx" }

// shapeInputs returns which inputs of n determine its output shapes by their contents. It
// returns false if the output shapes do not follow from the inputs' shapes and these
// contents.
func shapeInputs(n *models.Node) ([]int, bool) {
	switch {
	case n.Subgraphs:
		return nil, false
	case defaultDomain(n.Domain):
		if by, ok := shapedOps[n.OpType]; ok {
			return by, true
		}
		return nil, pureOps[n.OpType]
	case n.Domain == "com.microsoft":
		return nil, microsoftOps[n.OpType]
	case n.Domain == "com.microsoft.nchwc":
		return nil, true
	}
	return nil, false
}

// knowledge is what follows about a value from the shapes of the model's inputs.
type knowledge struct {
	// shape is set if its shape follows, and value if its contents follow.
	shape bool
	value bool
}

// trace returns what follows about every value of the graph from the shapes of its inputs.
func trace(f *models.File, v *models.Values) []knowledge {
	g := &f.Graph
	known := make([]knowledge, len(v.Names))
	for id := range known {
		if v.Producer[id] < 0 {
			known[id] = knowledge{shape: true, value: v.IsInitializer[id]}
		}
	}
	for i := range g.Nodes {
		k := traceNode(&g.Nodes[i], v.NodeIn[i], known)
		for _, out := range v.NodeOut[i] {
			if out >= 0 {
				known[out] = k
			}
		}
	}
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.Subgraphs || sharingOps[n.OpType] {
			forget(known, v.NodeIn[i])
			forget(known, v.NodeCaptures[i])
		}
	}
	return known
}

// forget leaves values to ONNX Runtime, which counts references to them.
func forget(known []knowledge, ids []int32) {
	for _, id := range ids {
		if id >= 0 {
			known[id] = knowledge{}
		}
	}
}

// traceNode returns what follows about the outputs of n from what is known about its
// inputs.
func traceNode(n *models.Node, in []int32, known []knowledge) knowledge {
	shapes, values := true, !n.Subgraphs && !randomOps[n.OpType] && !n.Custom()
	for _, id := range in {
		if id >= 0 {
			shapes = shapes && known[id].shape
			values = values && known[id].value
		}
	}
	if values {
		return knowledge{shape: true, value: true}
	}
	by, ok := shapeInputs(n)
	for _, i := range by {
		if i < len(in) && in[i] >= 0 && !known[in[i]].value {
			ok = false
		}
	}
	isShape := defaultDomain(n.Domain) && (n.OpType == "Shape" || n.OpType == "Size")
	return knowledge{shape: ok && shapes, value: ok && shapes && isShape}
}

// The output of some operators can use the memory of an input. ONNX Runtime plans that for
// a whole graph, but cannot for a session of one node, because the inputs of a session
// belong to the caller. The engine therefore assigns the memory of an input to the output.
// If the two addresses are equal, the kernels skip the copy.

// viewOps change the shape of their first input and not its bytes.
var viewOps = set("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")

// unaryOps and binaryOps compute each output element from the input elements at the same
// position, and may overwrite these.
var (
	unaryOps  = set("Abs", "Clip", "Exp", "LeakyRelu", "Neg", "Relu", "Sigmoid", "Sqrt", "Tanh")
	binaryOps = set("Add", "Div", "Mul", "Sub")
)

// reuse describes how the output of an operator may use the memory of an input.
type reuse struct {
	// inputs are the candidates, as positions among the node's inputs.
	inputs []int

	// view is set if the operator does not change the bytes, so that input and output may
	// both stay live.
	view bool
}

// sumInput is the position at which ONNX Runtime's fused convolutions read a residual,
// which they add to their result.
const sumInput = 3

// reuseOf returns the inputs whose memory the output of n may use. An input that n
// overwrites must have its last use at n, and exactly the size of the output.
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
