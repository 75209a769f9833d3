package segments

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// Config tells how a model is loaded.
type Config struct {
	Path              string // of the ONNX file
	CacheDir          string // where optimized forms are kept
	Target            int    // number of segments wanted, 0 for one at every node
	IntermediateBytes int64  // budget for the intermediates of all batches, 0 for DefaultIntermediateBytes
	Limits            models.Limits
	Ablation          Ablation
	Device            *Device             // nil for the CPU
	Progress          worker.ProgressFunc // may be nil
}

// DefaultIntermediateBytes is the budget for intermediates where none is set.
const DefaultIntermediateBytes = 2 << 30

// OpenModel reads, optimizes and cuts a model and makes a session of each segment.
func OpenModel(env *ort.Env, c Config) (*CutModel, error) {
	if c.Progress == nil {
		c.Progress = func(string, int64, int64) {}
	}
	if c.IntermediateBytes <= 0 {
		c.IntermediateBytes = DefaultIntermediateBytes
	}
	e := &CutModel{
		env:      env,
		layouts:  map[layoutKey]*layoutEntry{},
		batches:  map[models.BatchID]*batch{},
		budget:   c.IntermediateBytes,
		ablation: c.Ablation,
		device:   hostDevice{env},
	}
	if c.Device != nil {
		e.device = c.Device.device
	}
	if err := e.load(c); err != nil {
		return nil, errors.Join(e.device.fault(err), e.Close())
	}
	// The bytes of every segment passed through the heap; ONNX Runtime has its
	// own copy of the weights now.
	debug.FreeOSMemory()
	return e, nil
}

func (e *CutModel) load(c Config) error {
	started := time.Now()
	path, err := e.optimize(c)
	if err != nil {
		return err
	}
	err = e.loadOptimized(path, c)
	err = e.device.fault(err)
	if err != nil && e.cacheHit && !errors.Is(err, wire.ErrDeviceFull) && !ends(err) {
		// A cached file that does not load is worth one more try from the
		// model itself: the disk may have been full when it was written.
		os.Remove(path)
		e.closeSessions()
		if path, err = e.optimize(c); err == nil {
			err = e.loadOptimized(path, c)
		}
	}
	e.loadTook = time.Since(started)
	return err
}

// optimize reads the model and returns the path of its optimized form. The
// model is closed again by then, so that its pages do not add up with those of
// the optimized one.
func (e *CutModel) optimize(c Config) (string, error) {
	c.Progress("read", 0, 1)
	file, err := models.Open(c.Path, c.Limits)
	if err != nil {
		return "", err
	}
	defer file.Close()
	model, err := file.Model("")
	if err != nil {
		return "", err
	}
	e.model = *model
	e.batchDims = models.BatchDims(model.Inputs).Batch
	c.Progress("optimize", 0, 1)
	path, hit, err := optimize(e.env, e.device, file, model.Hash, c.CacheDir, optimizedLimits(c.Limits))
	e.cacheHit = hit
	return path, err
}

// loadOptimized cuts the optimized file and makes the sessions.
func (e *CutModel) loadOptimized(path string, c Config) error {
	c.Progress("cut", 0, 1)
	file, err := models.Open(path, optimizedLimits(c.Limits))
	if err != nil {
		return err
	}
	defer file.Close()
	if err := e.cutAndLoad(file, c, nil); err != nil {
		return err
	}
	// Only now the types of all values are known.
	if joined := e.cut.optionals(e.types); len(joined) > 0 {
		e.closeSessions()
		if err := e.cutAndLoad(file, c, joined); err != nil {
			return err
		}
	}
	if err := e.findHomes(); err != nil {
		return err
	}
	if e.runOptions, err = e.env.NewRunOptions(); err != nil {
		return err
	}
	if e.device.far() {
		if err := e.runOptions.AddConfigEntry(ort.NoSync, "1"); err != nil {
			return err
		}
	}
	e.cut.file, e.cut.inits = nil, nil
	return nil
}

func (e *CutModel) cutAndLoad(file *models.File, c Config, joined []nodes) (err error) {
	if e.cut, err = cut(file, c.Target, joined); err != nil {
		return err
	}
	e.known = trace(&file.Graph, e.cut.values)
	e.types = make([]models.Type, len(e.cut.values.Names))
	if err := e.findEnds(file); err != nil {
		return err
	}
	if e.device.far() {
		if err := e.account(); err != nil {
			return err
		}
	}
	return e.makeSessions(c)
}

// optimizedLimits returns the limits of a model's optimized form. The optimizer
// fuses nodes, but also expands functions and adds conversions.
func optimizedLimits(l models.Limits) models.Limits {
	l.Nodes *= 2
	l.Tensors *= 2
	l.References *= 2
	return l
}

// findEnds maps the inputs and outputs of the model to values of the optimized
// graph.
func (e *CutModel) findEnds(f *models.File) error {
	e.inputs, e.outputs = nil, nil
	for _, in := range f.Graph.Inputs {
		if id, ok := e.cut.values.ID(in.Name); ok {
			e.types[id] = in.Type
		}
	}
	for _, in := range e.model.Inputs {
		id, ok := e.cut.values.ID(in.Name)
		if !ok {
			return fmt.Errorf("%s: input %q is gone after optimization", f.Path, in.Name)
		}
		e.inputs = append(e.inputs, int32(id))
	}
	if len(f.Graph.Outputs) != len(e.model.Outputs) {
		return fmt.Errorf("%s: %d outputs after optimization, %d before", f.Path, len(f.Graph.Outputs), len(e.model.Outputs))
	}
	for _, out := range f.Graph.Outputs {
		id, ok := e.cut.values.ID(out.Name)
		if !ok || e.cut.values.Producer[id] < 0 {
			return fmt.Errorf("%s: output %q is made by no operator", f.Path, out.Name)
		}
		e.outputs = append(e.outputs, int32(id))
	}
	return nil
}

// makeSessions loads every piece, in order: each session tells the types of
// its outputs, which are the input types of later ones.
func (e *CutModel) makeSessions(c Config) error {
	options := ort.SessionOptions{Optimization: ort.None, OwnArena: c.Ablation.OwnArenas, PerSessionThreads: c.Ablation.OwnPools}
	e.device.session(&options)
	e.model.Operators = nil
	e.uses = make([][]use, len(e.inputs))
	inputOf := make(map[int32]int, len(e.inputs))
	for i, id := range e.inputs {
		inputOf[id] = i
	}
	var raw []byte
	e.made = make([]use, len(e.types))
	for id := range e.made {
		e.made[id].piece = -1
	}
	for p := range e.cut.pieces {
		c.Progress("load", int64(p), int64(len(e.cut.pieces)))
		var err error
		if raw, err = e.cut.appendModel(raw[:0], p, e.types); err != nil {
			return err
		}
		s, err := e.env.NewSession(raw, options)
		if err != nil {
			op := e.cut.operator(p)
			return fmt.Errorf("operator %d (%s %q): ONNX Runtime cannot load it by itself: %w", p, op.Type, op.Name, err)
		}
		e.sessions = append(e.sessions, s)
		e.model.Operators = append(e.model.Operators, e.cut.operator(p))
		for i, id := range e.cut.pieces[p].outputs {
			e.made[id] = use{p, i}
			e.types[id] = typeOf(s.Outputs()[i].Type)
		}
		for pos, id := range e.cut.pieces[p].inputs {
			if i, ok := inputOf[id]; ok {
				e.uses[i] = append(e.uses[i], use{p, pos})
			}
		}
	}
	c.Progress("load", int64(len(e.cut.pieces)), int64(len(e.cut.pieces)))
	return nil
}

func (e *CutModel) closeSessions() {
	for _, s := range e.sessions {
		s.Close()
	}
	e.sessions = nil
}

// typeOf translates a type reported by ONNX Runtime.
func typeOf(t ort.TypeInfo) models.Type {
	m := models.Type{Elem: models.DataType(t.Elem), Key: models.DataType(t.Key)}
	switch t.Kind {
	case ort.KindTensor:
		m.Kind = models.KindTensor
	case ort.KindSparseTensor:
		m.Kind = models.KindSparseTensor
	case ort.KindSequence:
		m.Kind = models.KindSequence
	case ort.KindMap:
		m.Kind = models.KindMap
	case ort.KindOptional:
		m.Kind = models.KindOptional
	}
	if t.Item != nil {
		item := typeOf(*t.Item)
		m.Item = &item
	}
	return m
}
