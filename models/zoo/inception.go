package zoo

import "fmt"

const (
	inceptionSide    = 299
	inceptionEpsilon = 1e-3
)

// Windows of Inception v3. A flat and a tall window together replace one large square window.
var (
	point = square(1, 1, 0)
	third = square(3, 1, 1)
	halve = square(3, 2, 0)
	flat3 = window{1, 3, 1, 0, 1}
	tall3 = window{3, 1, 1, 1, 0}
	flat7 = window{1, 7, 1, 0, 3}
	tall7 = window{7, 1, 1, 3, 0}
	fifth = square(5, 1, 2)
	// narrow has no padding: the image loses its border.
	narrow = square(3, 1, 0)
)

// inceptionV3 builds the network in its inference form, without the auxiliary head.
func inceptionV3(g *graph) {
	x := g.image(inceptionSide)
	x = unit(g, x, "Conv2d_1a_3x3", 32, halve)
	x = unit(g, x, "Conv2d_2a_3x3", 32, narrow)
	x = unit(g, x, "Conv2d_2b_3x3", 64, third)
	x = g.maxPool(x, "maxpool1", halve)
	x = unit(g, x, "Conv2d_3b_1x1", 80, point)
	x = unit(g, x, "Conv2d_4a_3x3", 192, narrow)
	x = g.maxPool(x, "maxpool2", halve)
	x = inceptionA(g, x, "Mixed_5b", 32)
	x = inceptionA(g, x, "Mixed_5c", 64)
	x = inceptionA(g, x, "Mixed_5d", 64)
	x = inceptionB(g, x, "Mixed_6a")
	x = inceptionC(g, x, "Mixed_6b", 128)
	x = inceptionC(g, x, "Mixed_6c", 160)
	x = inceptionC(g, x, "Mixed_6d", 160)
	x = inceptionC(g, x, "Mixed_6e", 192)
	x = inceptionD(g, x, "Mixed_7a")
	x = inceptionE(g, x, "Mixed_7b")
	x = inceptionE(g, x, "Mixed_7c")
	g.classify(x, imageClasses)
}

// unit adds a convolution followed by normalization and Relu.
func unit(g *graph, x feature, module string, channels int64, w window) feature {
	x = g.conv(x, module+".conv", channels, w, false)
	x = g.norm(x, module+".bn", inceptionEpsilon, 1)
	return g.relu(x, module+".relu")
}

// step is one unit of a chain.
type step struct {
	channels int64
	window
}

// chain adds units in sequence, numbered from 1.
func chain(g *graph, x feature, module string, steps ...step) feature {
	for i, s := range steps {
		x = unit(g, x, fmt.Sprintf("%s_%d", module, i+1), s.channels, s.window)
	}
	return x
}

// inceptionA is a block on 35x35 features.
func inceptionA(g *graph, x feature, module string, poolChannels int64) feature {
	return g.concat(module,
		unit(g, x, module+".branch1x1", 64, point),
		chain(g, x, module+".branch5x5", step{48, point}, step{64, fifth}),
		chain(g, x, module+".branch3x3dbl", step{64, point}, step{96, third}, step{96, third}),
		pooled(g, x, module, poolChannels))
}

// inceptionB reduces 35x35 features to 17x17.
func inceptionB(g *graph, x feature, module string) feature {
	return g.concat(module,
		unit(g, x, module+".branch3x3", 384, halve),
		chain(g, x, module+".branch3x3dbl", step{64, point}, step{96, third}, step{96, halve}),
		g.maxPool(x, module+".branch_pool", halve))
}

// inceptionC is a block on 17x17 features.
func inceptionC(g *graph, x feature, module string, width int64) feature {
	return g.concat(module,
		unit(g, x, module+".branch1x1", 192, point),
		chain(g, x, module+".branch7x7", step{width, point}, step{width, flat7}, step{192, tall7}),
		chain(g, x, module+".branch7x7dbl", step{width, point}, step{width, tall7}, step{width, flat7}, step{width, tall7}, step{192, flat7}),
		pooled(g, x, module, 192))
}

// inceptionD reduces 17x17 features to 8x8.
func inceptionD(g *graph, x feature, module string) feature {
	return g.concat(module,
		chain(g, x, module+".branch3x3", step{192, point}, step{320, halve}),
		chain(g, x, module+".branch7x7x3", step{192, point}, step{192, flat7}, step{192, tall7}, step{192, halve}),
		g.maxPool(x, module+".branch_pool", halve))
}

// inceptionE is a block on 8x8 features.
func inceptionE(g *graph, x feature, module string) feature {
	// fork splits a 3x3 convolution into a flat and a tall one in parallel.
	fork := func(x feature, module string) feature {
		return g.concat(module, unit(g, x, module+"a", 384, flat3), unit(g, x, module+"b", 384, tall3))
	}
	return g.concat(module,
		unit(g, x, module+".branch1x1", 320, point),
		fork(chain(g, x, module+".branch3x3", step{384, point}), module+".branch3x3_2"),
		fork(chain(g, x, module+".branch3x3dbl", step{448, point}, step{384, third}), module+".branch3x3dbl_3"),
		pooled(g, x, module, 192))
}

// pooled adds the branch that averages before its convolution.
func pooled(g *graph, x feature, module string, channels int64) feature {
	x = g.averagePool(x, module, third)
	return unit(g, x, module+".branch_pool", channels, point)
}
