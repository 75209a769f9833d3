package zoo

import "fmt"

const (
	imageClasses = 1000

	resnetSide    = 224
	resnetEpsilon = 1e-5
	// resnetExpansion is the ratio of a bottleneck's output channels to its inner channels.
	resnetExpansion = 4

	// residualScale is the scale of the last normalization of a block. With 1 the variance
	// would double in each of up to 50 blocks.
	residualScale = 0.25
)

// resnet returns the builder of a residual network with bottleneck blocks and the given number
// of blocks per stage. The 3x3 convolution has the stride, as in v1.5.
func resnet(blocks ...int) func(*graph) {
	return func(g *graph) {
		x := g.image(resnetSide)
		x = g.convNorm(x, "conv1", "bn1", 64, square(7, 2, 3), 1)
		x = g.relu(x, "relu")
		x = g.maxPool(x, "maxpool", square(3, 2, 1))
		for stage, count := range blocks {
			for block := range count {
				stride := int64(1)
				if stage > 0 && block == 0 {
					stride = 2
				}
				module := fmt.Sprintf("layer%d.%d", stage+1, block)
				x = bottleneck(g, x, module, 64<<stage, stride)
			}
		}
		g.classify(x, imageClasses)
	}
}

// bottleneck adds a block of three convolutions with a shortcut around them. The shortcut has
// a convolution of its own where the shape changes.
func bottleneck(g *graph, x feature, module string, width, stride int64) feature {
	y := g.convNorm(x, module+".conv1", module+".bn1", width, square(1, 1, 0), 1)
	y = g.relu(y, module+".relu")
	y = g.convNorm(y, module+".conv2", module+".bn2", width, square(3, stride, 1), 1)
	y = g.relu(y, module+".relu")
	y = g.convNorm(y, module+".conv3", module+".bn3", width*resnetExpansion, square(1, 1, 0), residualScale)
	shortcut := x
	if stride != 1 || x.channels != y.channels {
		shortcut = g.convNorm(x, module+".downsample.0", module+".downsample.1", y.channels, square(1, stride, 0), 1)
	}
	return g.residual(y, shortcut, module)
}
