package zoo

import (
	"fmt"
	"math"

	"github.com/overlapd/overlapd/models"
)

// bert holds the dimensions of a BERT encoder.
type bert struct {
	layers int
	hidden int64
	heads  int64
	// inner is the width between the two dense layers of a block.
	inner      int64
	vocabulary int64
	// positions is the longest sequence.
	positions int64
}

var (
	bertBase = bert{layers: 12, hidden: 768, heads: 12, inner: 3072, vocabulary: 30522, positions: 512}
	bertTiny = bert{layers: 2, hidden: 32, heads: 2, inner: 64, vocabulary: 128, positions: 64}
)

const (
	bertTokenTypes = 2
	bertEpsilon    = 1e-12

	// maskedScore is added to the attention scores of masked tokens. It is far below any real
	// score and still finite in 16 bits.
	maskedScore = -10000
)

// build adds the whole network: embeddings, the encoder layers and the pooler.
func (m bert) build(g *graph) {
	x := m.encode(g)
	x = g.output(x, "last_hidden_state", batched(g.elem, free("sequence"), fixed(m.hidden)))
	g.output(m.pool(g, x), "pooler_output", batched(g.elem, fixed(m.hidden)))
}

// encode adds the embeddings and the encoder layers, and returns the hidden states.
func (m bert) encode(g *graph) string {
	ids := g.input("input_ids", tokens())
	mask := g.input("attention_mask", tokens())
	types := g.input("token_type_ids", tokens())

	x := m.embed(g, ids, types)
	bias := m.maskBias(g, mask)
	for i := range m.layers {
		module := fmt.Sprintf("encoder.layer.%d", i)
		x = m.attend(g, x, bias, module+".attention")
		x = m.feedForward(g, x, module)
	}
	return x
}

func tokens() models.Type { return batched(models.Int64, free("sequence")) }

// embed returns the embeddings of the tokens: the normalized sum of their word, type and
// position embeddings.
func (m bert) embed(g *graph, ids, types string) string {
	const module = "embeddings"
	words := m.table(g, module+".word_embeddings", m.vocabulary, 1, ids)
	kinds := m.table(g, module+".token_type_embeddings", bertTokenTypes, 0.3, types)
	places := m.table(g, module+".position_embeddings", m.positions, 0.3, m.positionIDs(g, ids))
	x := g.add(module, "Add", []string{words, kinds})
	x = g.add(module, "Add", []string{x, places})
	return m.norm(g, x, module+".LayerNorm")
}

// table adds an embedding with the given number of rows and looks up indices in it.
func (m bert) table(g *graph, module string, rows int64, deviation float64, indices string) string {
	weight := g.weight(module+".weight", around(0, deviation), rows, m.hidden)
	return g.add(module, "Gather", []string{weight, indices}, integer("axis", 0))
}

// positionIDs returns the tensor [1, sequence] of positions: a constant, cut to the length of
// ids at run time.
func (m bert) positionIDs(g *graph, ids string) string {
	const module = "embeddings"
	all := make([]int64, m.positions)
	for i := range all {
		all[i] = int64(i)
	}
	shape := g.add(module, "Shape", []string{ids})
	length := g.add(module, "Gather", []string{shape, g.integers("index_1", nil, 1)}, integer("axis", 0))
	end := g.add(module, "Unsqueeze", []string{length, axes(g, 0)})
	return g.add(module, "Slice", []string{
		g.integers(module+".position_ids", []int64{1, m.positions}, all...),
		axes(g, 0), end, axes(g, 1), axes(g, 1),
	})
}

// maskBias converts the mask [batch, sequence] of ones and zeros into the bias that is added
// to the scores [batch, heads, sequence, sequence].
func (m bert) maskBias(g *graph, mask string) string {
	const module = "mask"
	x := g.add(module, "Unsqueeze", []string{mask, axes(g, 1)})
	x = g.add(module, "Unsqueeze", []string{x, axes(g, 2)})
	x = g.add(module, "Cast", []string{x}, integer("to", int64(g.elem)))
	x = g.add(module, "Sub", []string{g.scalar("one", 1), x})
	return g.add(module, "Mul", []string{x, g.scalar("masked_score", maskedScore)})
}

// attend adds self-attention with its residual connection and normalization.
func (m bert) attend(g *graph, x, bias, module string) string {
	self := module + ".self"
	query := m.split(g, x, self, "query", 0, 2, 1, 3)
	key := m.split(g, x, self, "key", 0, 2, 3, 1)
	value := m.split(g, x, self, "value", 0, 2, 1, 3)

	scale := g.scalar("head_scale", float32(math.Sqrt(float64(m.hidden/m.heads))))
	scores := g.add(self, "MatMul", []string{query, key})
	scores = g.add(self, "Div", []string{scores, scale})
	scores = g.add(self, "Add", []string{scores, bias})
	shares := g.add(self, "Softmax", []string{scores}, integer("axis", -1))
	y := g.add(self, "MatMul", []string{shares, value})
	y = g.add(self, "Transpose", []string{y}, integers("perm", 0, 2, 1, 3))
	y = g.add(self, "Reshape", []string{y, g.integers("joined_heads", []int64{3}, 0, 0, m.hidden)})
	return m.project(g, y, x, module+".output", m.hidden)
}

// split adds a projection and splits it into heads. perm moves the head dimension to the
// front; for the key it also transposes the last two dimensions.
func (m bert) split(g *graph, x, module, name string, perm ...int64) string {
	x = m.affine(g, x, module+"."+name, m.hidden, m.hidden)
	x = g.add(module, "Reshape", []string{x, g.integers("split_heads", []int64{4}, 0, 0, m.heads, m.hidden/m.heads)})
	return g.add(module, "Transpose", []string{x}, integers("perm", perm...))
}

// feedForward adds the two dense layers of a block, with their residual and normalization.
func (m bert) feedForward(g *graph, x, module string) string {
	y := m.affine(g, x, module+".intermediate.dense", m.hidden, m.inner)
	y = m.gelu(g, y, module+".intermediate")
	return m.project(g, y, x, module+".output", m.inner)
}

// project adds a dense layer back to the hidden width, followed by the residual and its
// normalization.
func (m bert) project(g *graph, x, residual, module string, in int64) string {
	x = m.affine(g, x, module+".dense", in, m.hidden)
	x = g.add(module, "Add", []string{x, residual})
	return m.norm(g, x, module+".LayerNorm")
}

func (m bert) norm(g *graph, x, module string) string {
	return g.add(module, "LayerNormalization", []string{
		x,
		g.weight(module+".weight", around(1, scaleDeviation), m.hidden),
		g.weight(module+".bias", around(0, biasDeviation), m.hidden),
	}, integer("axis", -1), float("epsilon", bertEpsilon))
}

// pool adds the pooler, which makes one vector from the first token of the hidden states.
func (m bert) pool(g *graph, x string) string {
	const module = "pooler"
	first := g.add(module, "Gather", []string{x, g.integers("index_0", nil, 0)}, integer("axis", 1))
	y := g.dense(first, module+".dense", m.hidden, m.hidden, forLinear(m.hidden))
	return g.add(module, "Tanh", []string{y})
}

// affine adds a MatMul and an Add, as exporters write a dense layer on sequences. The bias must
// be the second input of the Add: only then does ONNX Runtime fuse it with the operators that
// follow.
func (bert) affine(g *graph, x, module string, in, out int64) string {
	x = g.add(module, "MatMul", []string{x, g.weight(module+".weight", forLinear(in), in, out)})
	return g.add(module, "Add", []string{x, g.weight(module+".bias", around(0, biasDeviation), out)})
}

// gelu adds the exact GELU, x/2 (1 + erf(x/√2)), as separate nodes. ONNX Runtime fuses them.
func (bert) gelu(g *graph, x, module string) string {
	y := g.add(module, "Div", []string{x, g.scalar("sqrt_2", math.Sqrt2)})
	y = g.add(module, "Erf", []string{y})
	y = g.add(module, "Add", []string{y, g.scalar("one", 1)})
	y = g.add(module, "Mul", []string{x, y})
	return g.add(module, "Mul", []string{y, g.scalar("half", 0.5)})
}

// axes returns the constant [axis].
func axes(g *graph, axis int64) string {
	return g.integers(fmt.Sprintf("axes_%d", axis), []int64{1}, axis)
}
