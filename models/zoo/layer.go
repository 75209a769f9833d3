package zoo

import "github.com/overlapd/overlapd/models"

// feature is a feature map inside a network: the name of a tensor
// [batch, channels, height, width], and its number of channels.
type feature struct {
	name     string
	channels int64
}

// window is the geometry of a convolution or pooling.
type window struct {
	height, width       int64
	stride              int64
	padHeight, padWidth int64
}

func square(size, stride, pad int64) window { return window{size, size, stride, pad, pad} }

func (w window) attributes() []attribute {
	return []attribute{
		integers("kernel_shape", w.height, w.width),
		integers("pads", w.padHeight, w.padWidth, w.padHeight, w.padWidth),
		integers("strides", w.stride, w.stride),
	}
}

// image declares the input of a network that takes square RGB images of the given side.
func (g *graph) image(side int64) feature {
	name := g.input("input", batched(g.elem, fixed(3), fixed(side), fixed(side)))
	return feature{name, 3}
}

// conv adds a convolution. It needs a bias only if no normalization follows.
func (g *graph) conv(x feature, module string, channels int64, w window, bias bool) feature {
	fanIn := x.channels * w.height * w.width
	inputs := []string{x.name, g.weight(module+".weight", forRelu(fanIn), channels, x.channels, w.height, w.width)}
	if bias {
		inputs = append(inputs, g.weight(module+".bias", around(0, biasDeviation), channels))
	}
	attrs := append([]attribute{integers("dilations", 1, 1), integer("group", 1)}, w.attributes()...)
	return feature{g.add(module, "Conv", inputs, attrs...), channels}
}

// The spread of the parameters that are not matrix products. They vary between channels as in
// a trained network, but stay near the values that leave activations unchanged.
const (
	biasDeviation     = 0.05
	scaleDeviation    = 0.1
	varianceDeviation = 0.1
)

// norm adds a batch normalization with a scale near gamma.
func (g *graph) norm(x feature, module string, epsilon float32, gamma float64) feature {
	name := g.add(module, "BatchNormalization", []string{
		x.name,
		g.weight(module+".weight", around(gamma, gamma*scaleDeviation), x.channels),
		g.weight(module+".bias", around(0, biasDeviation), x.channels),
		g.statistic(module+".running_mean", around(0, biasDeviation), x.channels),
		g.statistic(module+".running_var", around(1, varianceDeviation), x.channels),
	}, float("epsilon", epsilon), float("momentum", 0.9))
	return feature{name, x.channels}
}

func (g *graph) relu(x feature, module string) feature {
	return feature{g.add(module, "Relu", []string{x.name}), x.channels}
}

func (g *graph) maxPool(x feature, module string, w window) feature {
	attrs := append([]attribute{integer("ceil_mode", 0)}, w.attributes()...)
	return feature{g.add(module, "MaxPool", []string{x.name}, attrs...), x.channels}
}

func (g *graph) averagePool(x feature, module string, w window) feature {
	attrs := append([]attribute{integer("ceil_mode", 0), integer("count_include_pad", 1)}, w.attributes()...)
	return feature{g.add(module, "AveragePool", []string{x.name}, attrs...), x.channels}
}

// convNorm adds a convolution and its normalization.
func (g *graph) convNorm(x feature, conv, norm string, channels int64, w window, gamma float64) feature {
	return g.norm(g.conv(x, conv, channels, w, false), norm, resnetEpsilon, gamma)
}

// residual adds the sum of two features, followed by a Relu.
func (g *graph) residual(x, y feature, module string) feature {
	sum := g.add(module, "Add", []string{x.name, y.name})
	return g.relu(feature{sum, x.channels}, module+".relu")
}

// concat concatenates features along their channels.
func (g *graph) concat(module string, parts ...feature) feature {
	var joined feature
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.name
		joined.channels += p.channels
	}
	joined.name = g.add(module, "Concat", names, integer("axis", 1))
	return joined
}

// flatten reshapes each image into one row.
func (g *graph) flatten(x feature) string {
	return g.add("flatten", "Flatten", []string{x.name}, integer("axis", 1))
}

// dense adds a fully connected layer: a Gemm with transposed weights, as exporters write it.
func (g *graph) dense(x, module string, in, out int64, f fill) string {
	return g.add(module, "Gemm", []string{
		x,
		g.weight(module+".weight", f, out, in),
		g.weight(module+".bias", around(0, biasDeviation), out),
	}, float("alpha", 1), float("beta", 1), integer("transB", 1))
}

// classify adds the tail that image networks share: the mean of each channel, a dense layer
// and the output.
func (g *graph) classify(x feature, classes int64) {
	pooled := g.add("avgpool", "GlobalAveragePool", []string{x.name})
	flat := g.flatten(feature{pooled, x.channels})
	scores := g.dense(flat, "fc", x.channels, classes, forLinear(x.channels))
	g.output(scores, "output", g.scores(classes))
}

func (g *graph) scores(classes int64) models.Type { return batched(g.elem, fixed(classes)) }
