package segments

import (
	"fmt"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/models"
)

// piece is one segment before it is loaded: the nodes [first, last) of the optimized graph
// and the values that cross its borders.
type piece struct {
	first, last int

	// inputs are the values produced outside the piece, in the order of their first use.
	// outputs are those that later pieces read or the model returns.
	inputs  []int32
	outputs []int32

	// weights are the initializers that the nodes use.
	weights []int32

	// convolves is set if the piece has convolutions.
	convolves bool

	// custom is set if the piece may have custom operators, at any depth.
	custom bool

	// pins is set if the kernels of the piece may leave pinned memory behind on a GPU.
	pins bool

	// fixed is set if every run does the same, so that the session may run as a CUDA graph.
	fixed bool

	// reuse and nodeInputs are set only for a piece of one node: which inputs its output
	// may share memory with, and its inputs by position.
	reuse      reuse
	nodeInputs []int32
}

// cutting is a graph that is cut into pieces.
type cutting struct {
	// file, parts and inits are nil once the sessions are loaded.
	file  *models.File
	parts *models.Parts
	inits map[int32]*models.Initializer

	values *models.Values
	pieces []piece

	// leastShared is the size in bytes from which weights are shared between sessions.
	leastShared int

	// lastAt holds, for each value, the last piece that uses it: len(pieces) for an output
	// of the model, and -1 if no piece does.
	lastAt []int
}

// cut divides the graph of f. A target of 0 cuts at every node. Otherwise the result has
// about target pieces of similar size, with each border moved slightly to where the fewest
// values are live. No border falls into a joined range.
func cut(f *models.File, target int, joined []nodes) (*cutting, error) {
	g := &f.Graph
	if len(g.Nodes) == 0 {
		return nil, fmt.Errorf("%s: the graph has no operators after optimization: there is nothing to run", f.Path)
	}
	c := &cutting{file: f, parts: f.Parts(), inits: map[int32]*models.Initializer{}, values: g.Index()}
	for i := range g.Initializers {
		if id, ok := c.values.ID(g.Initializers[i].Name); ok {
			c.inits[int32(id)] = &g.Initializers[i]
		}
	}
	borders := join(c.borders(target), joined)
	pieceOf := make([]int, len(g.Nodes)+1)
	for p := 0; p+1 < len(borders); p++ {
		c.pieces = append(c.pieces, piece{first: borders[p], last: borders[p+1]})
		for n := borders[p]; n < borders[p+1]; n++ {
			pieceOf[n] = p
		}
	}
	pieceOf[len(g.Nodes)] = len(c.pieces)
	c.lastAt = make([]int, len(c.values.Names))
	for id, last := range c.values.LastUse {
		c.lastAt[id] = -1
		if last >= 0 {
			c.lastAt[id] = pieceOf[last]
		}
	}
	for p := range c.pieces {
		c.findBorderValues(p)
	}
	return c, nil
}

// borders returns the first node of every piece, followed by the number of nodes.
func (c *cutting) borders(target int) []int {
	n := len(c.file.Graph.Nodes)
	if target <= 0 || target >= n {
		target = n
	}
	alive := c.values.AliveBefore()
	slack := n / target / 4
	borders := []int{0}
	for p := 1; p < target; p++ {
		ideal := p * n / target
		best := max(ideal, borders[len(borders)-1]+1)
		for at := ideal - slack; at <= ideal+slack; at++ {
			if at > borders[len(borders)-1] && at < n && alive[at] < alive[best] {
				best = at
			}
		}
		borders = append(borders, best)
	}
	return append(borders, n)
}

// findBorderValues determines the values that cross the borders of piece p, and the
// properties of its nodes.
func (c *cutting) findBorderValues(p int) {
	pc := &c.pieces[p]
	pc.fixed = true
	seen := map[int32]bool{}
	use := func(id int32) {
		if id < 0 || seen[id] {
			return
		}
		seen[id] = true
		switch producer := int(c.values.Producer[id]); {
		case c.values.IsInitializer[id]:
			pc.weights = append(pc.weights, id)
		case producer < pc.first:
			pc.inputs = append(pc.inputs, id)
		}
	}
	var all []int32
	for n := pc.first; n < pc.last; n++ {
		node := &c.file.Graph.Nodes[n]
		pc.convolves = pc.convolves || node.Convolves()
		pc.custom = pc.custom || node.Custom() || node.Subgraphs
		pc.pins = pc.pins || pinningOps[node.OpType] && !c.oneProduct(n) || node.Subgraphs || node.Custom()
		pc.fixed = pc.fixed && !pc.pins && !randomOps[node.OpType]
		for _, id := range c.values.NodeIn[n] {
			use(id)
		}
		for _, id := range c.values.NodeCaptures[n] {
			use(id)
		}
		for _, id := range c.values.NodeOut[n] {
			if id < 0 {
				continue
			}
			all = append(all, id)
			if c.lastAt[id] > p {
				pc.outputs = append(pc.outputs, id)
			}
		}
	}
	if pc.last-pc.first == 1 {
		pc.reuse = reuseOf(&c.file.Graph.Nodes[pc.first])
		pc.nodeInputs = c.values.NodeIn[pc.first]
	}
	// A session must have an output, even if nothing reads it.
	if len(pc.outputs) == 0 && len(all) > 0 {
		pc.outputs = all[:1]
	}
}

// oneProduct reports whether node n is a product with a matrix among the weights. ONNX
// Runtime treats the other factor as a single matrix then, and needs no table of matrices
// in pinned memory.
func (c *cutting) oneProduct(n int) bool {
	node := &c.file.Graph.Nodes[n]
	if !defaultDomain(node.Domain) || node.OpType != "MatMul" || len(node.Inputs) != 2 {
		return false
	}
	w := c.inits[c.values.NodeIn[n][1]]
	return w != nil && len(w.Dims) == 2
}

// appendModel appends piece p to dst as a model of its own. types holds the types of values
// that earlier pieces produce. Nodes and initializers are copied unchanged, including
// references to files of external data. Initializers for which held returns true are
// replaced by references to the file at location.
func (c *cutting) appendModel(dst []byte, p int, types []models.Type, held func(id int32) bool, location string) []byte {
	pc := &c.pieces[p]
	parts := *c.parts
	parts.Name = fmt.Sprintf("operator_%d", p)
	parts.Nodes = c.parts.Nodes[pc.first:pc.last]
	parts.Initializers, parts.SparseInitializers, parts.Inputs, parts.Outputs = nil, nil, nil, nil
	for _, id := range pc.weights {
		init := c.inits[id]
		if held(id) {
			parts.Initializers = append(parts.Initializers, init.At(location))
		} else if init.Sparse {
			parts.SparseInitializers = append(parts.SparseInitializers, init.Raw)
		} else {
			parts.Initializers = append(parts.Initializers, init.Raw)
		}
	}
	for _, id := range pc.inputs {
		parts.Inputs = append(parts.Inputs, models.AppendValueInfo(nil, c.values.Names[id], types[id]))
	}
	for _, id := range pc.outputs {
		parts.Outputs = append(parts.Outputs, models.AppendValueInfo(nil, c.values.Names[id], models.Type{}))
	}
	return parts.Append(dst)
}

// operator describes piece p for the scheduler.
func (c *cutting) operator(p int) models.Operator {
	pc := &c.pieces[p]
	nodes := c.file.Graph.Nodes[pc.first:pc.last]
	var kinds []string
	for i := range nodes {
		if len(kinds) == 0 || kinds[len(kinds)-1] != nodes[i].OpType {
			kinds = append(kinds, nodes[i].OpType)
		}
	}
	const maxKinds = 6
	if len(kinds) > maxKinds {
		kinds = append(slices.Clone(kinds[:maxKinds]), "…")
	}
	return models.Operator{
		Name:      nodes[len(nodes)-1].Name,
		Type:      strings.Join(kinds, "+"),
		Nodes:     len(nodes),
		LiveBytes: -1,
	}
}

// weightsOf returns the bytes of the weights that piece p uses. A weight that several
// pieces use counts for each of them.
func (c *cutting) weightsOf(p int) (total int64) {
	for _, id := range c.pieces[p].weights {
		init := c.inits[id]
		total += int64(len(init.Raw))
		if init.External != nil {
			total += init.External.Length
		}
	}
	return total
}

// halfConv reports whether piece p has convolutions with float16 weights and no float32
// matrix. TF32 makes such convolutions faster, but it would also round a float32 matrix.
func (c *cutting) halfConv(p int) (half bool) {
	pc := &c.pieces[p]
	for n := pc.first; n < pc.last; n++ {
		if node := &c.file.Graph.Nodes[n]; node.Convolves() && len(node.Inputs) > 1 {
			w := c.inits[c.values.NodeIn[n][1]]
			half = half || w != nil && w.Type == models.Float16
		}
	}
	return half && !slices.ContainsFunc(pc.weights, func(id int32) bool {
		return c.inits[id].Type == models.Float32 && len(c.inits[id].Dims) > 1
	})
}

// An optional may be empty, and ONNX Runtime does not accept an empty optional as the input
// of a session. The operator that produces an optional and all operators that use it
// therefore belong in one piece.

// nodes is a range of nodes, including both ends, that must stay in one piece.
type nodes struct{ first, last int }

// optionals returns the ranges of nodes over which optionals are passed from one piece to
// another.
func (c *cutting) optionals(types []models.Type) []nodes {
	var ranges []nodes
	for p := range c.pieces {
		for _, id := range c.pieces[p].outputs {
			if types[id].Kind != models.KindOptional {
				continue
			}
			if last := min(int(c.values.LastUse[id]), len(c.values.NodeIn)-1); last >= c.pieces[p].last {
				ranges = append(ranges, nodes{int(c.values.Producer[id]), last})
			}
		}
	}
	return ranges
}

// join removes the borders that divide a joined range.
func join(borders []int, joined []nodes) []int {
	return slices.DeleteFunc(borders, func(border int) bool {
		return slices.ContainsFunc(joined, func(r nodes) bool { return r.first < border && border <= r.last })
	})
}
