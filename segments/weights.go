package segments

import (
	"errors"
	"fmt"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// leastShared is the size in bytes from which weights are shared between sessions.
const leastShared = 4 << 10

// repacked are operators for which ONNX Runtime creates a copy of a matrix of weights in an
// order that suits the CPU. The number is the position of the matrix among the inputs. ONNX
// Runtime reads the original only to create the copy.
var repacked = map[string]int{
	"MatMul": 1, "Gemm": 1, "FusedMatMul": 1, "FusedGemm": 1, "MatMulInteger": 1, "MatMulIntegerToFloat": 1,
	"DynamicQuantizeMatMul": 1, "QLinearMatMul": 3, "Attention": 1, "QAttention": 1,
}

// weights are the large weights of a model on the CPU. ONNX Runtime uses them in place,
// once for all sessions. Weights that it repacks stay in the mapped file. The others are
// copied to memory, so that they stay resident and do not change if another process writes
// to the file.
type weights struct {
	// files are the mapped files with the repacked weights. The kernel may evict their
	// pages.
	files []*models.File

	// memory holds the copied weights, each aligned.
	memory []byte

	// values holds a tensor for each weight. copies holds the destination of each weight
	// that is still to be copied into memory.
	values map[int32]*ort.Value
	copies map[int32][]byte
}

// hold creates a tensor for each weight that is large, or that the models of the
// pieces cannot contain. The file and those from which it was made must stay open until the
// sessions are closed.
func (w *weights) hold(env *ort.Env, c *cutting) error {
	w.values, w.copies = map[int32]*ort.Value{}, map[int32][]byte{}
	data := map[int32][]byte{}
	var bytes int64
	for p := range c.pieces {
		pc := &c.pieces[p]
		for _, id := range pc.weights {
			from := c.file.Data(*c.inits[id])
			if !c.apart(id, int64(len(from))) {
				continue
			}
			data[id] = from
			if _, copied := w.copies[id]; !copied && !c.packs(pc, id) {
				w.copies[id] = nil
				bytes += aligned(int64(len(from)))
			}
		}
	}
	var err error
	if bytes > 0 {
		if w.memory, err = wire.MapPrivate(bytes, "for weights"); err != nil {
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
		init := c.inits[id]
		if w.values[id], err = env.TensorOn(at, init.Type, init.Dims); err != nil {
			return fmt.Errorf("weights %q: %w", init.Name, err)
		}
	}
	return nil
}

// apart reports whether a weight with this many bytes of data is kept outside the models of
// its pieces. Unless they are external data, small weights and integers of 32 or 64 bits
// stay inside, because they may determine shapes.
func (c *cutting) apart(id int32, bytes int64) bool {
	init := c.inits[id]
	if bytes == 0 {
		return false
	}
	return init.External != nil || bytes >= int64(c.leastShared) && init.Type != models.Int64 && init.Type != models.Int32
}

// packs reports whether ONNX Runtime runs pc with a repacked copy of a weight.
func (c *cutting) packs(pc *piece, id int32) bool {
	const matrix = 2 // dimensions; tensors with more are not repacked
	at, ok := repacked[c.file.Graph.Nodes[pc.first].OpType]
	return ok && len(pc.nodeInputs) > at && pc.nodeInputs[at] == id && len(c.inits[id].Dims) == matrix
}

// held reports whether sessions receive a weight as a tensor.
func (w *weights) held(id int32) bool { return w.values[id] != nil }

// of returns the tensors of the weights of a piece, by name. It first copies those that are
// still in the file, and calls progress with the number of bytes copied.
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

// close frees the weights. The sessions must be closed before.
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
