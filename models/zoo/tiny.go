package zoo

import "github.com/overlapd/overlapd/models"

const (
	tinyWidth   = 16
	tinySide    = 32
	tinyClasses = 10
)

// tinyAdd is the model of Triton's simple example, so that clients written for it work.
func tinyAdd(g *graph) {
	row := batched(models.Int32, fixed(tinyWidth))
	a, b := g.input("INPUT0", row), g.input("INPUT1", row)
	g.output(g.add("sum", "Add", []string{a, b}), "OUTPUT0", row)
	g.output(g.add("difference", "Sub", []string{a, b}), "OUTPUT1", row)
}

// tinyIdentity has almost no cost of its own, so its latency is that of the daemon.
func tinyIdentity(g *graph) {
	row := batched(g.elem, free("length"))
	x := g.input("INPUT0", row)
	g.output(g.add("identity", "Identity", []string{x}), "OUTPUT0", row)
}

// tinyMLP is the smallest model with weights.
func tinyMLP(g *graph) {
	const hidden = 32
	x := g.input("input", batched(g.elem, fixed(tinyWidth)))
	x = g.dense(x, "fc1", tinyWidth, hidden, forRelu(tinyWidth))
	x = g.add("relu", "Relu", []string{x})
	x = g.dense(x, "fc2", hidden, tinyClasses, forLinear(hidden))
	g.output(x, "output", g.scores(tinyClasses))
}

// tinyCNN has the operators of an image network: convolution, normalization, residual and
// classifier.
func tinyCNN(g *graph) {
	x := g.image(tinySide)
	x = g.convNorm(x, "conv1", "bn1", 16, square(3, 2, 1), 1)
	x = g.relu(x, "relu1")
	y := g.convNorm(x, "conv2", "bn2", 16, square(3, 1, 1), 1)
	y = g.relu(y, "relu2")
	y = g.convNorm(y, "conv3", "bn3", 16, square(3, 1, 1), residualScale)
	x = g.residual(y, x, "block")
	g.classify(x, tinyClasses)
}
