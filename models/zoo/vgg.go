package zoo

import "strconv"

const (
	vggSide   = 224
	vggHidden = 4096
	// vggLast is the side of the last feature map.
	vggLast = 7
)

// vgg returns the builder of a plain network of 3x3 convolutions, with the given number of
// convolutions before each pooling. Layers are numbered as in the reference implementation,
// whose list also counts Relu and pooling.
func vgg(convs ...int) func(*graph) {
	return func(g *graph) {
		x := g.image(vggSide)
		layer := 0
		next := func() string {
			layer++
			return "features." + strconv.Itoa(layer-1)
		}
		for stage, count := range convs {
			channels := min(64<<stage, int64(512))
			for range count {
				x = g.conv(x, next(), channels, square(3, 1, 1), true)
				x = g.relu(x, next())
			}
			x = g.maxPool(x, next(), square(2, 2, 0))
		}
		vggClassifier(g, x)
	}
}

// vggClassifier adds the three dense layers, which hold most of the parameters.
func vggClassifier(g *graph, x feature) {
	in := x.channels * vggLast * vggLast
	y := g.flatten(x)
	y = g.dense(y, "classifier.0", in, vggHidden, forRelu(in))
	y = g.add("classifier.1", "Relu", []string{y})
	y = g.dense(y, "classifier.3", vggHidden, vggHidden, forRelu(vggHidden))
	y = g.add("classifier.4", "Relu", []string{y})
	y = g.dense(y, "classifier.6", vggHidden, imageClasses, forLinear(vggHidden))
	g.output(y, "output", g.scores(imageClasses))
}
