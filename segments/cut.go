package segments

import (
	"fmt"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/models"
)

// piece is one segment before it is loaded: nodes [first, last) of the
// optimized graph and the values that cross its borders.
type piece struct {
	first, last int
	inputs      []int32 // values made outside, in the order of their first use
	outputs     []int32 // values that somebody outside uses
	weights     []int32 // initializers that its nodes use
	convolves   bool    // it has convolutions
	pins        bool    // on a GPU its kernels may leave pinned memory behind
	fixed       bool    // it does the same in each run, and its session may be run as a CUDA graph
	reuse       reuse   // for a piece of one node, what its output may share
	nodeInputs  []int32 // for a piece of one node, its inputs by position
}

// cutting is a graph cut into pieces.
type cutting struct {
	file   *models.File  // nil once the sessions are made, and so are the two that follow
	parts  *models.Parts // of the file
	inits  map[int32]*models.Initializer
	values *models.Values
	pieces []piece
	lastAt []int // per value, the piece that uses it last; len(pieces) if it is an output of the model, -1 if none
}

// cut divides the graph of f. A target of 0 cuts at every node; otherwise the
// graph is divided into about target pieces of like size, each border moved a
// little to where the fewest values are alive. What is joined stays in one
// piece.
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

// borders returns the first node of every piece, and the end.
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

// findBorderValues fills in what crosses the borders of piece p.
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
		pc.pins = pc.pins || pinningOps[node.OpType] && !c.oneProduct(n) || node.Subgraphs
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
	// A session must have an output, even one that nobody wants.
	if len(pc.outputs) == 0 && len(all) > 0 {
		pc.outputs = all[:1]
	}
}

// oneProduct reports whether node n multiplies by a matrix of the model's: ONNX Runtime
// takes all that is multiplied as one matrix, and needs no table of several.
func (c *cutting) oneProduct(n int) bool {
	node := &c.file.Graph.Nodes[n]
	if !defaultDomain(node.Domain) || node.OpType != "MatMul" || len(node.Inputs) != 2 {
		return false
	}
	w := c.inits[c.values.NodeIn[n][1]]
	return w != nil && len(w.Dims) == 2
}

// appendModel appends piece p as a model of its own. Types has the types of
// values made by earlier pieces; the bytes of nodes and initializers are
// passed on as they are, also where they refer to a file of external data, but without
// the data of initializers that are held apart, which refer to the file at location.
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

// operator describes piece p as the scheduler sees it.
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

// weightsOf returns the size of the weights that piece p uses.
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

// halfConv reports whether piece p has convolutions with weights of float16, and no
// matrix of float32 that would be rounded like them where that makes them faster.
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

// An optional may be empty, and ONNX Runtime cannot take an empty one as the
// input of a session. So what makes an optional and all that uses it go into
// one piece.

// nodes is a range of nodes, both ends included, that must not be divided.
type nodes struct{ first, last int }

// optionals returns the ranges over which pieces hand each other optionals.
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

// join takes away the borders that divide what is joined.
func join(borders []int, joined []nodes) []int {
	return slices.DeleteFunc(borders, func(border int) bool {
		return slices.ContainsFunc(joined, func(r nodes) bool { return r.first < border && border <= r.last })
	})
}
