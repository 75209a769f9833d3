package zoo

const (
	inceptionSide    = 299
	inceptionEpsilon = 1e-3
)

// Windows of Inception v3. The flat and the tall ones come in pairs that
// stand for one large square.
var (
	point  = square(1, 1, 0)
	third  = square(3, 1, 1)
	halve  = square(3, 2, 0)
	flat3  = window{1, 3, 1, 0, 1}
	tall3  = window{3, 1, 1, 1, 0}
	flat7  = window{1, 7, 1, 0, 3}
	tall7  = window{7, 1, 1, 3, 0}
	fifth  = square(5, 1, 2)
	narrow = square(3, 1, 0) // no padding: the image loses its border
)

// inceptionV3 builds the network as it is used after training, without the
// auxiliary head.
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

// unit adds a convolution with normalization and Relu.
func unit(g *graph, x feature, module string, channels int64, w window) feature {
	x = g.conv(x, module+".conv", channels, w, false)
	x = g.norm(x, module+".bn", inceptionEpsilon, 1)
	return g.relu(x, module+".relu")
}

// inceptionA works at 35x35.
func inceptionA(g *graph, x feature, module string, poolChannels int64) feature {
	direct := unit(g, x, module+".branch1x1", 64, point)

	five := unit(g, x, module+".branch5x5_1", 48, point)
	five = unit(g, five, module+".branch5x5_2", 64, fifth)

	double := unit(g, x, module+".branch3x3dbl_1", 64, point)
	double = unit(g, double, module+".branch3x3dbl_2", 96, third)
	double = unit(g, double, module+".branch3x3dbl_3", 96, third)

	pool := pooled(g, x, module, poolChannels)
	return g.concat(module, direct, five, double, pool)
}

// inceptionB leads from 35x35 to 17x17.
func inceptionB(g *graph, x feature, module string) feature {
	three := unit(g, x, module+".branch3x3", 384, halve)

	double := unit(g, x, module+".branch3x3dbl_1", 64, point)
	double = unit(g, double, module+".branch3x3dbl_2", 96, third)
	double = unit(g, double, module+".branch3x3dbl_3", 96, halve)

	pool := g.maxPool(x, module+".branch_pool", halve)
	return g.concat(module, three, double, pool)
}

// inceptionC works at 17x17.
func inceptionC(g *graph, x feature, module string, width int64) feature {
	direct := unit(g, x, module+".branch1x1", 192, point)

	seven := unit(g, x, module+".branch7x7_1", width, point)
	seven = unit(g, seven, module+".branch7x7_2", width, flat7)
	seven = unit(g, seven, module+".branch7x7_3", 192, tall7)

	double := unit(g, x, module+".branch7x7dbl_1", width, point)
	double = unit(g, double, module+".branch7x7dbl_2", width, tall7)
	double = unit(g, double, module+".branch7x7dbl_3", width, flat7)
	double = unit(g, double, module+".branch7x7dbl_4", width, tall7)
	double = unit(g, double, module+".branch7x7dbl_5", 192, flat7)

	pool := pooled(g, x, module, 192)
	return g.concat(module, direct, seven, double, pool)
}

// inceptionD leads from 17x17 to 8x8.
func inceptionD(g *graph, x feature, module string) feature {
	three := unit(g, x, module+".branch3x3_1", 192, point)
	three = unit(g, three, module+".branch3x3_2", 320, halve)

	seven := unit(g, x, module+".branch7x7x3_1", 192, point)
	seven = unit(g, seven, module+".branch7x7x3_2", 192, flat7)
	seven = unit(g, seven, module+".branch7x7x3_3", 192, tall7)
	seven = unit(g, seven, module+".branch7x7x3_4", 192, halve)

	pool := g.maxPool(x, module+".branch_pool", halve)
	return g.concat(module, three, seven, pool)
}

// inceptionE works at 8x8.
func inceptionE(g *graph, x feature, module string) feature {
	direct := unit(g, x, module+".branch1x1", 320, point)

	three := unit(g, x, module+".branch3x3_1", 384, point)
	three = g.concat(module+".branch3x3_2",
		unit(g, three, module+".branch3x3_2a", 384, flat3),
		unit(g, three, module+".branch3x3_2b", 384, tall3))

	double := unit(g, x, module+".branch3x3dbl_1", 448, point)
	double = unit(g, double, module+".branch3x3dbl_2", 384, third)
	double = g.concat(module+".branch3x3dbl_3",
		unit(g, double, module+".branch3x3dbl_3a", 384, flat3),
		unit(g, double, module+".branch3x3dbl_3b", 384, tall3))

	pool := pooled(g, x, module, 192)
	return g.concat(module, direct, three, double, pool)
}

// pooled adds the branch that averages before it convolves.
func pooled(g *graph, x feature, module string, channels int64) feature {
	x = g.averagePool(x, module, third)
	return unit(g, x, module+".branch_pool", channels, point)
}
