package segments

import (
	"errors"
	"fmt"
	"maps"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// leastShared is how large weights are that are worth sharing, in bytes. Tests change it.
var leastShared = 4 << 10

// repacked are operators that ONNX Runtime computes with a copy of their weights in an
// order that suits the processor. It reads the weights once, to make that copy, which all
// sessions share.
var repacked = set("MatMul", "Gemm", "FusedMatMul", "FusedGemm")

// weights are the large weights of a model, once for all sessions that use them: where
// each operator has a session for all threads and one for a single thread.
type weights struct {
	file   *models.File         // holds those of repacked operators; its pages may leave memory
	memory []byte               // holds the others, aligned
	values map[int32]*ort.Value // by value of the graph
}

// shareWeights has all sessions that are made of file's pieces hold their weights
// together. The file must stay open until they are closed.
func (m *loaded) shareWeights(file *models.File) error {
	w := &m.weights
	w.values = map[int32]*ort.Value{}
	data, copied := map[int32][]byte{}, map[int32]bool{}
	var bytes int64
	for p := range m.cut.pieces {
		pc := &m.cut.pieces[p]
		for _, id := range pc.weights {
			if init := m.cut.inits[id]; init.Type != models.Int64 && init.Type != models.Int32 { // such may decide about shapes
				data[id] = file.Data(*init)
			}
			if packs := pc.last-pc.first == 1 && repacked[file.Graph.Nodes[pc.first].OpType]; !packs && len(data[id]) >= leastShared && !copied[id] {
				copied[id] = true
				bytes += aligned(int64(len(data[id])))
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
	for id, from := range data {
		if len(from) < leastShared {
			continue
		}
		if copied[id] {
			n := copy(free, from)
			from, free = free[:n], free[aligned(int64(n)):]
		}
		init := m.cut.inits[id]
		if w.values[id], err = m.env.TensorOn(from, init.Type, init.Dims); err != nil {
			return fmt.Errorf("weights %q: %w", init.Name, err)
		}
	}
	return nil
}

// at returns the location of shared weights, "" for others, which stand in their model.
// ONNX Runtime wants to find them there, and then takes those that are shared.
func (w *weights) at(id int32) string {
	if w.values[id] == nil {
		return ""
	}
	return fmt.Sprintf("shared_%d", id)
}

// of returns the shared weights of a piece by name, and adds them to external data.
func (w *weights) of(pc *piece, names []string, external map[string][]byte) (map[string]*ort.Value, map[string][]byte) {
	if len(w.values) == 0 {
		return nil, external
	}
	shared, external := map[string]*ort.Value{}, maps.Clone(external)
	for _, id := range pc.weights {
		if v := w.values[id]; v != nil {
			shared[names[id]] = v
			external[w.at(id)], _ = v.Bytes() // of a tensor in memory
		}
	}
	return shared, external
}

// keep takes the file over once all sessions are made. Its pages are read again if
// somebody needs them after all.
func (w *weights) keep(file *models.File) {
	file.Forget()
	w.file = file
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
	if w.file != nil {
		errs = append(errs, w.file.Close())
	}
	*w = weights{}
	return errors.Join(errs...)
}
