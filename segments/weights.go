package segments

import (
	"errors"
	"fmt"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// leastShared is how large weights are that are worth sharing, in bytes. Tests change it.
var leastShared = 4 << 10

// repacked are operators that ONNX Runtime computes with a copy of a matrix of weights, the
// input at this position, in an order that suits the processor. It reads the weights once,
// to make that copy.
var repacked = map[string]int{
	"MatMul": 1, "Gemm": 1, "FusedMatMul": 1, "FusedGemm": 1, "MatMulInteger": 1, "MatMulIntegerToFloat": 1,
	"DynamicQuantizeMatMul": 1, "QLinearMatMul": 3, "Attention": 1, "QAttention": 1,
}

// weights are the large weights of a model on the CPU, which ONNX Runtime takes where they
// lie, once for all sessions that use them. Those that it packs stay in the mapped file.
// The others are copied out of it, so that they neither leave memory nor change when somebody
// writes to the file.
type weights struct {
	files  []*models.File       // hold those of repacked operators; their pages may leave memory
	memory []byte               // holds the others, aligned
	values map[int32]*ort.Value // by value of the graph
	copies map[int32][]byte     // by value, its place in memory, until its data are there
}

// holdWeights makes a value of each weight of the pieces that is large, or that no model may
// hold. The file and those that it was made of must stay open until the sessions are closed.
func (m *loaded) holdWeights(file *models.File) error {
	w := &m.weights
	w.values, w.copies = map[int32]*ort.Value{}, map[int32][]byte{}
	data := map[int32][]byte{}
	var bytes int64
	for p := range m.cut.pieces {
		pc := &m.cut.pieces[p]
		for _, id := range pc.weights {
			from := file.Data(*m.cut.inits[id])
			if !m.cut.apart(id, int64(len(from))) {
				continue
			}
			data[id] = from
			if _, copied := w.copies[id]; !copied && !m.cut.packs(pc, id) {
				w.copies[id] = nil
				bytes += aligned(int64(len(from)))
			}
		}
	}
	var err error
	if bytes > 0 {
		if w.memory, err = hostMemory(bytes, "for weights"); err != nil {
			return err
		}
	}
	free := w.memory
	for id, at := range data {
		if _, copied := w.copies[id]; copied {
			n := len(at)
			at, free = free[:n:n], free[aligned(int64(n)):]
			w.copies[id] = at
		}
		init := m.cut.inits[id]
		if w.values[id], err = m.env.TensorOn(at, init.Type, init.Dims); err != nil {
			return fmt.Errorf("weights %q: %w", init.Name, err)
		}
	}
	return nil
}

// apart reports whether a weight with so many bytes of data does not stand in the models
// of its pieces. Small numbers do that may decide about shapes.
func (c *cutting) apart(id int32, bytes int64) bool {
	init := c.inits[id]
	if bytes == 0 {
		return false
	}
	return init.External != nil || bytes >= int64(leastShared) && init.Type != models.Int64 && init.Type != models.Int32
}

// packs reports whether ONNX Runtime computes pc with a packed copy of a weight.
func (c *cutting) packs(pc *piece, id int32) bool {
	const matrix = 2 // dimensions: tensors of more are taken as they are
	at, ok := repacked[c.file.Graph.Nodes[pc.first].OpType]
	return ok && len(pc.nodeInputs) > at && pc.nodeInputs[at] == id && len(c.inits[id].Dims) == matrix
}

// held reports whether sessions are given a weight as a value.
func (w *weights) held(id int32) bool { return w.values[id] != nil }

// of returns the weights of a piece that are held, by name, with their data. It calls
// progress with how many bytes were copied.
func (w *weights) of(c *cutting, pc *piece, progress func(bytes int64)) map[string]*ort.Value {
	held := map[string]*ort.Value{}
	for _, id := range pc.weights {
		if to := w.copies[id]; to != nil {
			c.file.Copy(to, *c.inits[id], progress)
			delete(w.copies, id)
		}
		if v := w.values[id]; v != nil {
			held[c.values.Names[id]] = v
		}
	}
	return held
}

// close is called once the sessions are closed.
func (w *weights) close() error {
	var errs []error
	for _, v := range w.values {
		errs = append(errs, v.Close())
	}
	if w.memory != nil {
		wire.Unmap(w.memory)
	}
	for _, file := range w.files {
		errs = append(errs, file.Close())
	}
	*w = weights{}
	return errors.Join(errs...)
}
