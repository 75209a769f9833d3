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
	x = g.unit(x, "Conv2d_1a_3x3", 32, halve)
	x = g.unit(x, "Conv2d_2a_3x3", 32, narrow)
	x = g.unit(x, "Conv2d_2b_3x3", 64, third)
	x = g.maxPool(x, "maxpool1", halve)
	x = g.unit(x, "Conv2d_3b_1x1", 80, point)
	x = g.unit(x, "Conv2d_4a_3x3", 192, narrow)
	x = g.maxPool(x, "maxpool2", halve)
	x = g.inceptionA(x, "Mixed_5b", 32)
	x = g.inceptionA(x, "Mixed_5c", 64)
	x = g.inceptionA(x, "Mixed_5d", 64)
	x = g.inceptionB(x, "Mixed_6a")
	x = g.inceptionC(x, "Mixed_6b", 128)
	x = g.inceptionC(x, "Mixed_6c", 160)
	x = g.inceptionC(x, "Mixed_6d", 160)
	x = g.inceptionC(x, "Mixed_6e", 192)
	x = g.inceptionD(x, "Mixed_7a")
	x = g.inceptionE(x, "Mixed_7b")
	x = g.inceptionE(x, "Mixed_7c")
	g.classify(x, imageClasses)
}

// unit adds a convolution with normalization and Relu.
func (g *graph) unit(x feature, module string, channels int64, w window) feature {
	x = g.conv(x, module+".conv", channels, w, false)
	x = g.norm(x, module+".bn", inceptionEpsilon, 1)
	return g.relu(x, module+".relu")
}

// inceptionA works at 35x35.
func (g *graph) inceptionA(x feature, module string, poolChannels int64) feature {
	direct := g.unit(x, module+".branch1x1", 64, point)

	five := g.unit(x, module+".branch5x5_1", 48, point)
	five = g.unit(five, module+".branch5x5_2", 64, fifth)

	double := g.unit(x, module+".branch3x3dbl_1", 64, point)
	double = g.unit(double, module+".branch3x3dbl_2", 96, third)
	double = g.unit(double, module+".branch3x3dbl_3", 96, third)

	pool := g.pooled(x, module, poolChannels)
	return g.concat(module, direct, five, double, pool)
}

// inceptionB leads from 35x35 to 17x17.
func (g *graph) inceptionB(x feature, module string) feature {
	three := g.unit(x, module+".branch3x3", 384, halve)

	double := g.unit(x, module+".branch3x3dbl_1", 64, point)
	double = g.unit(double, module+".branch3x3dbl_2", 96, third)
	double = g.unit(double, module+".branch3x3dbl_3", 96, halve)

	pool := g.maxPool(x, module+".branch_pool", halve)
	return g.concat(module, three, double, pool)
}

// inceptionC works at 17x17.
func (g *graph) inceptionC(x feature, module string, width int64) feature {
	direct := g.unit(x, module+".branch1x1", 192, point)

	seven := g.unit(x, module+".branch7x7_1", width, point)
	seven = g.unit(seven, module+".branch7x7_2", width, flat7)
	seven = g.unit(seven, module+".branch7x7_3", 192, tall7)

	double := g.unit(x, module+".branch7x7dbl_1", width, point)
	double = g.unit(double, module+".branch7x7dbl_2", width, tall7)
	double = g.unit(double, module+".branch7x7dbl_3", width, flat7)
	double = g.unit(double, module+".branch7x7dbl_4", width, tall7)
	double = g.unit(double, module+".branch7x7dbl_5", 192, flat7)

	pool := g.pooled(x, module, 192)
	return g.concat(module, direct, seven, double, pool)
}

// inceptionD leads from 17x17 to 8x8.
func (g *graph) inceptionD(x feature, module string) feature {
	three := g.unit(x, module+".branch3x3_1", 192, point)
	three = g.unit(three, module+".branch3x3_2", 320, halve)

	seven := g.unit(x, module+".branch7x7x3_1", 192, point)
	seven = g.unit(seven, module+".branch7x7x3_2", 192, flat7)
	seven = g.unit(seven, module+".branch7x7x3_3", 192, tall7)
	seven = g.unit(seven, module+".branch7x7x3_4", 192, halve)

	pool := g.maxPool(x, module+".branch_pool", halve)
	return g.concat(module, three, seven, pool)
}

// inceptionE works at 8x8.
func (g *graph) inceptionE(x feature, module string) feature {
	direct := g.unit(x, module+".branch1x1", 320, point)

	three := g.unit(x, module+".branch3x3_1", 384, point)
	three = g.concat(module+".branch3x3_2",
		g.unit(three, module+".branch3x3_2a", 384, flat3),
		g.unit(three, module+".branch3x3_2b", 384, tall3))

	double := g.unit(x, module+".branch3x3dbl_1", 448, point)
	double = g.unit(double, module+".branch3x3dbl_2", 384, third)
	double = g.concat(module+".branch3x3dbl_3",
		g.unit(double, module+".branch3x3dbl_3a", 384, flat3),
		g.unit(double, module+".branch3x3dbl_3b", 384, tall3))

	pool := g.pooled(x, module, 192)
	return g.concat(module, direct, three, double, pool)
}

// pooled adds the branch that averages before it convolves.
func (g *graph) pooled(x feature, module string, channels int64) feature {
	x = g.averagePool(x, module, third)
	return g.unit(x, module+".branch_pool", channels, point)
}
