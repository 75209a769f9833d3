package zoo

import (
	"strconv"

	"github.com/overlapd/overlapd/models"
)

// graph collects the nodes and tensors of one model. Nodes are added in topological order.
type graph struct {
	name string
	// elem is the element type of weights and activations.
	elem    models.DataType
	nodes   []node
	tensors []tensor
	inputs  []models.TensorSpec
	outputs []models.TensorSpec

	// nodeNames counts how often each node name was requested.
	nodeNames map[string]int
	// constants holds the names of the constants that are already in tensors.
	constants map[string]bool
}

// node is one operator of the graph, before optimization.
type node struct {
	name    string
	op      string
	inputs  []string
	outputs []string
	attrs   []attribute
}

// add appends a node with one output and returns the name of that output. module is the path
// of the layer, as in the network's reference implementation. If a layer has several nodes of
// one kind, their names get a number.
func (g *graph) add(module, op string, inputs []string, attrs ...attribute) string {
	name := module + "/" + op
	times := g.nodeNames[name]
	g.nodeNames[name]++
	if times > 0 {
		name += "_" + strconv.Itoa(times)
	}
	output := name + "_output_0"
	g.nodes = append(g.nodes, node{name, op, inputs, []string{output}, attrs})
	return output
}

// input declares an input of the model and returns its name.
func (g *graph) input(name string, t models.Type) string {
	g.inputs = append(g.inputs, models.TensorSpec{Name: name, Type: t})
	return name
}

// output declares value as an output of the model under its public name. It renames the value
// in all nodes so far and returns the new name, which later nodes must use.
func (g *graph) output(value, name string, t models.Type) string {
	g.outputs = append(g.outputs, models.TensorSpec{Name: name, Type: t})
	for _, n := range g.nodes {
		rename(n.inputs, value, name)
		rename(n.outputs, value, name)
	}
	return name
}

// rename replaces every occurrence of a name.
func rename(names []string, from, to string) {
	for i, n := range names {
		if n == from {
			names[i] = to
		}
	}
}

// weight adds a trained parameter and returns its name.
func (g *graph) weight(name string, f fill, dims ...int64) string {
	g.tensors = append(g.tensors, tensor{name: name, elem: g.elem, dims: dims, fill: f, trained: true})
	return name
}

// statistic adds a weight tensor that training does not learn and returns its name.
func (g *graph) statistic(name string, f fill, dims ...int64) string {
	g.tensors = append(g.tensors, tensor{name: name, elem: g.elem, dims: dims, fill: f})
	return name
}

// scalar returns the name of a constant of the graph's element type. Calls with the same name
// share one constant, so they must pass the same value.
func (g *graph) scalar(name string, value float32) string {
	return g.constant(tensor{name: name, elem: g.elem, fill: fill{center: value}})
}

// integers returns the name of an integer constant, such as a shape, an axis or an index.
// Calls with the same name share one constant.
func (g *graph) integers(name string, dims []int64, values ...int64) string {
	return g.constant(tensor{name: name, elem: models.Int64, dims: dims, fill: fill{integers: values}})
}

func (g *graph) constant(t tensor) string {
	if !g.constants[t.name] {
		g.constants[t.name] = true
		g.tensors = append(g.tensors, t)
	}
	return t.name
}

// params returns the number of trained parameters.
func (g *graph) params() int64 {
	var sum int64
	for _, t := range g.tensors {
		if t.trained {
			sum += t.elements()
		}
	}
	return sum
}

// batched returns a tensor type whose first dimension is the batch size.
func batched(elem models.DataType, rest ...models.Dim) models.Type {
	return models.TensorType(elem, append([]models.Dim{free("batch")}, rest...)...)
}

// free returns a dimension that is known only when a query arrives.
func free(name string) models.Dim { return models.Dim{Value: -1, Name: name} }

func fixed(size int64) models.Dim { return models.Dim{Value: size} }
