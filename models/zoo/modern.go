package zoo

import (
	"fmt"
	"math"
)

// modern holds the dimensions of an encoder in the manner of ModernBERT: rotary positions,
// attention to all tokens or to a window of them by turns, gated linear units, normalization
// before each block, and no biases.
type modern struct {
	bert
	// window is how far apart tokens of local layers may attend to each other.
	window int64
}

const (
	// rotaryBase is the base of the rotary frequencies.
	rotaryBase = 10000

	// globalEvery is how often a layer attends to all tokens; the others are local.
	globalEvery = 2
)

// textModern adds such an encoder whose output is the hidden states.
func textModern(g *graph) {
	m := modern{textBERT(), 32}
	m.inner = 2 * m.hidden
	ids := g.input("input_ids", tokens())
	mask := g.input("attention_mask", tokens())
	x := m.plainNorm(g, m.table(g, "embeddings.tok_embeddings", m.vocabulary, 1, ids), "embeddings.norm")
	positions := m.positionIDs(g, ids)
	all := m.maskBias(g, mask)
	near := g.add("mask", "Add", []string{all, m.distanceBias(g, positions)})
	cos, sin := m.rotations(g, positions)
	for i := range m.layers {
		module, bias := fmt.Sprintf("layers.%d", i), near
		if i%globalEvery == 0 {
			bias = all
		}
		x = m.attend(g, x, bias, cos, sin, module+".attn")
		x = m.feedForward(g, x, module+".mlp")
	}
	x = m.plainNorm(g, x, "final_norm")
	g.output(x, "last_hidden_state", batched(g.elem, free("sequence"), fixed(m.hidden)))
}

// plainNorm adds a layer normalization without a bias.
func (m modern) plainNorm(g *graph, x, module string) string {
	return g.add(module, "LayerNormalization", []string{x, g.weight(module+".weight", around(1, scaleDeviation), m.hidden)},
		integer("axis", -1), float("epsilon", bertEpsilon))
}

// distanceBias returns the bias [sequence, sequence] of pairs of tokens: 0 within the window,
// and that of masked tokens beyond. positions are [1, sequence].
func (m modern) distanceBias(g *graph, positions string) string {
	const module = "window"
	across := g.add(module, "Transpose", []string{positions}, integers("perm", 1, 0))
	apart := g.add(module, "Abs", []string{g.add(module, "Sub", []string{across, positions})})
	far := g.add(module, "Greater", []string{apart, g.integers("window", nil, m.window)})
	far = g.add(module, "Cast", []string{far}, integer("to", int64(g.elem)))
	return g.add(module, "Mul", []string{far, g.scalar("masked_score", maskedScore)})
}

// rotations returns the cosines and sines [sequence, head] by which each position is rotated.
// The frequencies are base^(-2i/head) for both halves of a head.
func (m modern) rotations(g *graph, positions string) (cos, sin string) {
	const module = "rotary"
	head := m.hidden / m.heads
	order := make([]int64, head)
	for i := range order {
		order[i] = int64(i) % (head / 2)
	}
	x := g.add(module, "Cast", []string{g.integers("frequency_order", []int64{1, head}, order...)}, integer("to", int64(g.elem)))
	x = g.add(module, "Mul", []string{x, g.scalar("frequency_step", float32(-2*math.Log(rotaryBase)/float64(head)))})
	x = g.add(module, "Exp", []string{x})
	places := g.add(module, "Transpose", []string{positions}, integers("perm", 1, 0))
	places = g.add(module, "Cast", []string{places}, integer("to", int64(g.elem)))
	angles := g.add(module, "Mul", []string{places, x})
	return g.add(module, "Cos", []string{angles}), g.add(module, "Sin", []string{angles})
}

// rotate applies the rotations to x [batch, heads, sequence, head].
func (m modern) rotate(g *graph, x, cos, sin, module string) string {
	head := m.hidden / m.heads
	slice := func(from, to int64) string {
		ends := func(at int64) string { return g.integers(fmt.Sprintf("at_%d", at), []int64{1}, at) }
		return g.add(module, "Slice", []string{x, ends(from), ends(to), ends(3)}) // the last axis
	}
	turned := g.add(module, "Concat", []string{g.add(module, "Neg", []string{slice(head/2, head)}), slice(0, head/2)}, integer("axis", -1))
	return g.add(module, "Add", []string{
		g.add(module, "Mul", []string{x, cos}), g.add(module, "Mul", []string{turned, sin}),
	})
}

// product adds a matrix product with a weight.
func (m modern) product(g *graph, x, module string, in, out int64) string {
	return g.add(module, "MatMul", []string{x, g.weight(module+".weight", forLinear(in), in, out)})
}

// attend adds normalization, self-attention and the residual.
func (m modern) attend(g *graph, x, bias, cos, sin, module string) string {
	normed := m.plainNorm(g, x, module+".norm")
	heads := func(name string) string {
		y := m.product(g, normed, module+"."+name, m.hidden, m.hidden)
		y = g.add(module, "Reshape", []string{y, g.integers("split_heads", []int64{4}, 0, 0, m.heads, m.hidden/m.heads)})
		return g.add(module, "Transpose", []string{y}, integers("perm", 0, 2, 1, 3))
	}
	query := m.rotate(g, heads("query"), cos, sin, module+".query")
	key := m.rotate(g, heads("key"), cos, sin, module+".key")
	key = g.add(module, "Transpose", []string{key}, integers("perm", 0, 1, 3, 2))
	scale := g.scalar("head_scale", float32(math.Sqrt(float64(m.hidden/m.heads))))
	scores := g.add(module, "Div", []string{g.add(module, "MatMul", []string{query, key}), scale})
	scores = g.add(module, "Add", []string{scores, bias})
	y := g.add(module, "MatMul", []string{g.add(module, "Softmax", []string{scores}, integer("axis", -1)), heads("value")})
	y = g.add(module, "Transpose", []string{y}, integers("perm", 0, 2, 1, 3))
	y = g.add(module, "Reshape", []string{y, g.integers("joined_heads", []int64{3}, 0, 0, m.hidden)})
	return g.add(module, "Add", []string{m.product(g, y, module+".Wo", m.hidden, m.hidden), x})
}

// feedForward adds normalization, a gated linear unit and the residual.
func (m modern) feedForward(g *graph, x, module string) string {
	normed := m.plainNorm(g, x, module+".norm")
	gate := m.gelu(g, m.product(g, normed, module+".gate", m.hidden, m.inner), module)
	y := g.add(module, "Mul", []string{gate, m.product(g, normed, module+".up", m.hidden, m.inner)})
	return g.add(module, "Add", []string{m.product(g, y, module+".Wo", m.inner, m.hidden), x})
}
