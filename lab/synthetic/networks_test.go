package synthetic

import "testing"

// op is one operator of a network, after what engines fuse is fused: what it takes
// for one image, or for a sequence of tokens.
type op struct {
	flops   float64 // operations
	moved   float64 // numbers that are read and written, besides the weights
	weights float64 // numbers that are read once for a batch
}

// network lists the operators of a network in order. It sees images of side by side
// pixels with so many channels.
type network struct {
	ops            []op
	side, channels float64
}

// conv adds a convolution with what follows it fused: bias, normalization, Relu.
func (n *network) conv(channels, height, width, stride float64, pad bool) *network {
	before := n.side * n.side * n.channels
	if !pad {
		n.side -= max(height, width) - stride
	}
	n.side = float64(int((n.side + stride - 1) / stride))
	outputs := n.side * n.side * channels
	n.ops = append(n.ops, op{
		flops: 2 * outputs * n.channels * height * width, moved: before + outputs,
		weights: n.channels * channels * height * width,
	})
	n.channels = channels
	return n
}

// pool adds a pooling over windows of side by side pixels.
func (n *network) pool(side, stride float64) *network {
	before := n.side * n.side * n.channels
	n.side = float64(int(n.side / stride))
	outputs := n.side * n.side * n.channels
	n.ops = append(n.ops, op{flops: outputs * side * side, moved: before + outputs})
	return n
}

// dense adds a product with a matrix of weights.
func (n *network) dense(outputs float64) *network {
	inputs := n.side * n.side * n.channels
	n.ops = append(n.ops, op{flops: 2 * inputs * outputs, moved: inputs + outputs, weights: inputs * outputs})
	n.side, n.channels = 1, outputs
	return n
}

func image(side float64) *network { return &network{side: side, channels: 3} }

const classes = 1000

// resnet is ResNet v1.5 with bottleneck blocks, as models/zoo builds it. The sum at
// the end of a block is fused into its last convolution.
func resnet(blocks ...int) []op {
	n := image(224).conv(64, 7, 7, 2, true).pool(3, 2)
	width := 64.
	for stage, count := range blocks {
		for block := range count {
			stride := 1.
			if stage > 0 && block == 0 {
				stride = 2
			}
			if block == 0 {
				around := network{side: n.side, channels: n.channels}
				n.ops = append(n.ops, around.conv(4*width, 1, 1, stride, true).ops...)
			}
			n.conv(width, 1, 1, 1, true).conv(width, 3, 3, stride, true).conv(4*width, 1, 1, 1, true)
			n.ops[len(n.ops)-1].moved += n.side * n.side * n.channels // the sum reads the block's input
		}
		width *= 2
	}
	return n.pool(n.side, n.side).dense(classes).ops
}

func vgg(convs ...int) []op {
	n, width := image(224), 64.
	for _, count := range convs {
		for range count {
			n.conv(width, 3, 3, 1, true)
		}
		n.pool(2, 2)
		width = min(2*width, 512)
	}
	return n.dense(4096).dense(4096).dense(classes).ops
}

// conv is a convolution as channels, height, width.
type conv [3]float64

// branch is a chain of convolutions beside others. A
// fork ends it in two that begin at the same features.
type branch struct {
	chain []conv
	fork  []conv
}

func chain(convs ...conv) branch { return branch{chain: convs} }

// beside adds branches that all begin at the same features, and joins what they yield.
// Those that reduce halve the side at their ends, beside a pooling that does.
func (n *network) beside(reduce bool, branches ...branch) *network {
	side, channels, joined := n.side, n.channels, 0.
	for _, b := range branches {
		n.side, n.channels = side, channels
		for i, c := range b.chain {
			if reduce && i == len(b.chain)-1 {
				n.conv(c[0], c[1], c[2], 2, false)
			} else {
				n.conv(c[0], c[1], c[2], 1, true)
			}
		}
		before := n.channels
		for _, c := range b.fork {
			n.channels = before
			joined += n.conv(c[0], c[1], c[2], 1, true).channels
		}
		if b.fork == nil {
			joined += n.channels
		}
	}
	if reduce {
		pooled := network{side: side, channels: channels}
		n.ops = append(n.ops, pooled.pool(3, 2).ops...)
		joined += channels
	}
	n.channels = joined
	n.ops = append(n.ops, op{moved: 2 * n.side * n.side * joined})
	return n
}

// inception is Inception v3 without its auxiliary head, as models/zoo builds it.
func inception() []op {
	n := image(299).conv(32, 3, 3, 2, false).conv(32, 3, 3, 1, false).conv(64, 3, 3, 1, true).pool(3, 2)
	n.conv(80, 1, 1, 1, true).conv(192, 3, 3, 1, false).pool(3, 2)
	for _, pooled := range []float64{32, 64, 64} {
		n.beside(false, chain(conv{64, 1, 1}), chain(conv{48, 1, 1}, conv{64, 5, 5}),
			chain(conv{64, 1, 1}, conv{96, 3, 3}, conv{96, 3, 3}), chain(conv{pooled, 1, 1}))
	}
	n.beside(true, chain(conv{384, 3, 3}), chain(conv{64, 1, 1}, conv{96, 3, 3}, conv{96, 3, 3}))
	for _, w := range []float64{128, 160, 160, 192} {
		n.beside(false, chain(conv{192, 1, 1}), chain(conv{w, 1, 1}, conv{w, 1, 7}, conv{192, 7, 1}),
			chain(conv{w, 1, 1}, conv{w, 7, 1}, conv{w, 1, 7}, conv{w, 7, 1}, conv{192, 1, 7}),
			chain(conv{192, 1, 1}))
	}
	n.beside(true, chain(conv{192, 1, 1}, conv{320, 3, 3}),
		chain(conv{192, 1, 1}, conv{192, 1, 7}, conv{192, 7, 1}, conv{192, 3, 3}))
	fork := []conv{{384, 1, 3}, {384, 3, 1}}
	for range 2 {
		n.beside(false, chain(conv{320, 1, 1}), branch{[]conv{{384, 1, 1}}, fork},
			branch{[]conv{{448, 1, 1}, {384, 3, 3}}, fork}, chain(conv{192, 1, 1}))
	}
	return n.pool(n.side, n.side).dense(classes).ops
}

// bert is BERT base for a sequence of so many tokens.
func bert(tokens float64) []op {
	const hidden, inner, heads, layers = 768, 3072, 12, 12
	var ops []op
	product := func(in, out float64) {
		ops = append(ops, op{flops: 2 * tokens * in * out, moved: tokens * (in + out), weights: in * out})
	}
	attend := func(flops, numbers float64) {
		ops = append(ops, op{flops: flops, moved: 2*tokens*hidden + numbers})
	}
	pass := func(numbers float64) { ops = append(ops, op{flops: 8 * numbers, moved: 3 * numbers}) }
	pass(tokens * hidden) // embeddings
	for range layers {
		for range 3 {
			product(hidden, hidden)
		}
		attend(2*tokens*tokens*hidden, heads*tokens*tokens)
		pass(heads * tokens * tokens)
		attend(2*tokens*tokens*hidden, heads*tokens*tokens)
		product(hidden, hidden)
		pass(tokens * hidden)
		product(hidden, inner)
		product(inner, hidden)
		pass(tokens * hidden)
	}
	ops = append(ops, op{flops: 2 * hidden * hidden, moved: 2 * hidden, weights: hidden * hidden})
	return ops
}

// The networks do what is published of them, in billions of multiply-adds.
func TestNetworks(t *testing.T) {
	for name, n := range map[string]struct {
		ops  []op
		want float64
	}{
		"resnet50": {resnet(3, 4, 6, 3), 4.1}, "resnet152": {resnet(3, 8, 36, 3), 11.5}, "vgg19": {vgg(2, 2, 4, 4, 4), 19.6},
		"inception_v3": {inception(), 5.7}, "bert": {bert(128), 11.2},
	} {
		sum := 0.
		for _, o := range n.ops {
			sum += o.flops / 2e9
		}
		if sum < 0.97*n.want || sum > 1.03*n.want {
			t.Errorf("%s: %.2f billion multiply-adds, want %v", name, sum, n.want)
		}
	}
}
