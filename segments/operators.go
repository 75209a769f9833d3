package segments

import "github.com/overlapd/overlapd/models"

// The memory plan of a batch is made once for each set of input shapes. That
// is sound for a value only if its shape follows from the input shapes alone.
// The tables below name the operators for which that can be said; a value of
// any other operator is allocated anew in each run, which is slower and always
// right.

// pureOps are operators of the default domain whose output shapes follow from
// their attributes and the shapes of their inputs.
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
	// What ONNX Runtime puts between the host and a device.
	"MemcpyFromHost", "MemcpyToHost",
)

// shapedOps are operators of the default domain whose output shapes also
// follow from the values of the inputs listed.
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
// from their attributes and the shapes of their inputs: those that its optimizer makes, and
// those of models that another tool has fused or quantized. Left out are those whose
// shapes follow from data, such as GroupQueryAttention, RelativePositionBias and
// RemovePadding, and those that search.
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

// sharingOps keep tensors in sequences and optionals. How long the bytes of
// such a tensor are needed cannot be told from who uses the tensor.
var sharingOps = set("Optional", "SequenceConstruct", "SequenceInsert", "SplitToSequence")

// pinningOps are operators whose kernels on a GPU may copy from pinned memory of the host,
// which ONNX Runtime takes for each run and gives back at the end of one that
// synchronizes: tables of their tensors, of batches of matrices, or of lengths.
var pinningOps = set("Concat", "FusedMatMul", "GRU", "GatherND", "LSTM", "LongformerAttention", "MatMul",
	"NonMaxSuppression", "RNN", "ScatterND", "Split", "TransposeMatMul")

// randomOps give another result at every run.
var randomOps = set("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike",
	"RandomUniform", "RandomUniformLike")

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

func defaultDomain(domain string) bool { return domain == "" || domain == "ai.onnx" }

// shapeInputs returns which inputs of n decide its output shapes by their
// value, and false if the output shapes cannot be told from shapes at all.
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

// knowledge is what the shapes of a model's inputs tell of a value.
type knowledge struct {
	shape bool // its shape follows
	value bool // its very content follows
}

// trace returns, for every value of the graph, what its input shapes tell.
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

// forget leaves values to ONNX Runtime, which counts who still refers to them.
func forget(known []knowledge, ids []int32) {
	for _, id := range ids {
		if id >= 0 {
			known[id] = knowledge{}
		}
	}
}

func traceNode(n *models.Node, in []int32, known []knowledge) knowledge {
	shapes, values := true, !n.Subgraphs && !randomOps[n.OpType]
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

// reuse is how the output of an operator may take the memory of an input.
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
