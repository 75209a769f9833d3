package segments

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// Limits of an engine.
const (
	// maxLayouts is how many sets of input shapes an engine remembers the
	// memory layout of. The least recently used one is forgotten.
	maxLayouts = 256

	// maxIdleFrames is how many frames without a batch are kept to be used
	// again.
	maxIdleFrames = 16
)

// Ablation turns off, one by one, the conditions that make cutting at every
// node cheap. It is for benchmarks.
type Ablation struct {
	OwnPools  int  // threads of a pool for each session, 0 for one pool for all
	OwnArenas bool // an arena for each session instead of one for all
	NoReuse   bool // every intermediate in memory of its own
	NoInPlace bool // no output in the memory of an input that dies
}

// CutModel runs the operators of one model. It belongs to one goroutine.
type CutModel struct {
	env        *ort.Env
	model      models.Model
	cut        *cutting
	sessions   []*ort.Session
	runOptions *ort.RunOptions
	types      []models.Type // by value, as its session reports it
	known      []knowledge   // by value
	inputs     []int32       // values of the model's inputs, in its order
	outputs    []int32       // values of the model's outputs, in its order
	batchDims  []int         // by input, its batch dimension, -1 if none
	uses       [][]use       // by input, where it is used
	made       []use         // by value, where it is made; piece is -1 for the model's inputs
	layouts    map[layoutKey]*layoutEntry
	clock      uint64 // counts uses of layouts, to forget the oldest
	idle       []*frame
	batches    map[models.BatchID]*batch
	budget     int64
	used       int64 // by frames, in use and idle
	ablation   Ablation
	cacheHit   bool
	loadTook   time.Duration

	device     device
	hostHome   []bool // by value, whether it lies in the host's memory
	waits      []bool // by piece, whether the device must have come that far before it runs
	pending    bool   // something was queued since the last wait
	deviceTook time.Duration
	memory     wire.DeviceMemory
	pins       [][]byte
}

// use is a place where a value enters or leaves a session.
type use struct{ piece, pos int }

// layoutKey names the set of input shapes that a layout holds for.
type layoutKey struct {
	shapes   string
	gathered bool
}

type layoutEntry struct {
	layout *layout
	size   int
	used   uint64
}

// Model returns what is known of the model.
func (e *CutModel) Model() *models.Model { return &e.model }

// Start begins batch id with these queries. The data of a single query is
// used where it lies; the data of several is gathered along their batch
// dimension. The views must stay valid until the batch is finished or
// released.
func (e *CutModel) Start(id models.BatchID, queries []worker.Query) error {
	if e.batches[id] != nil {
		return fmt.Errorf("batch %d: %w", id, wire.ErrBatchExists)
	}
	dims, err := e.gatherDims(queries)
	if err != nil {
		return err
	}
	b, err := e.newBatch(dims, e.batchSizes(queries))
	if err != nil {
		return err
	}
	switch {
	case e.device.far():
		err = e.upload(b, dims, queries)
	case len(queries) == 1:
		err = e.wrapInputs(b, queries[0])
	default:
		err = e.gather(b, dims, queries)
	}
	if err != nil {
		e.drop(b)
		return err
	}
	e.batches[id] = b
	return nil
}

// newBatch makes a batch for inputs of these shapes, with a frame. The sizes
// are those of its queries.
func (e *CutModel) newBatch(dims [][]int64, sizes []int) (*batch, error) {
	b := &batch{key: layoutKey{signature(dims), len(sizes) > 1 || e.device.far()}, sizes: sizes, size: sum(sizes)}
	var l *layout
	if entry := e.layouts[b.key]; entry != nil {
		e.clock++
		entry.used = e.clock
		l = entry.layout
	} else {
		b.shapes = make([]shape, len(e.types))
		for i, id := range e.inputs {
			bytes := int64(e.types[id].Elem.Bytes())
			b.shapes[id] = shape{dims: dims[i], bytes: elements(dims[i]) * bytes, known: bytes > 0 && e.known[id].shape}
		}
	}
	var err error
	b.frame, err = e.takeFrame(l)
	return b, err
}

// bindInput makes v the i-th input of the model.
func (e *CutModel) bindInput(b *batch, i int, v *ort.Value) {
	for _, u := range e.uses[i] {
		b.frame.program.SetInput(u.piece, u.pos, v)
	}
}

// Run runs operators [start, end) of batch id, and stops at the next operator
// boundary once *stop is not zero. It returns how far the batch has got. After
// an error the batch is gone.
func (e *CutModel) Run(id models.BatchID, start, end int, stop *uint32) (int, error) {
	b := e.batches[id]
	if b == nil {
		return 0, fmt.Errorf("batch %d: %w", id, wire.ErrUnknownBatch)
	}
	if start != b.next || end < start || end > len(e.cut.pieces) {
		return b.next, fmt.Errorf("batch %d stands at operator %d of %d, asked for [%d, %d): %w",
			id, b.next, len(e.cut.pieces), start, end, wire.ErrSpanOrder)
	}
	if err := b.run(e, end, stop); err != nil {
		e.Release(id)
		return b.next, e.explain(b.next, e.device.fault(err))
	}
	return b.next, nil
}

// explain adds to an error of ONNX Runtime which operator it comes from.
func (e *CutModel) explain(at int, err error) error {
	if at >= len(e.model.Operators) || errors.Is(err, wire.ErrMemory) {
		return err
	}
	if e.device.far() {
		// Of what was queued, something before may be the reason.
		return fmt.Errorf("at or before operator %d: %w", at, err)
	}
	op := e.model.Operators[at]
	return fmt.Errorf("operator %d (%s %q): %w", at, op.Type, op.Name, err)
}

// Release forgets a batch and its intermediates. Releasing a batch that is
// not there does nothing.
func (e *CutModel) Release(id models.BatchID) {
	if b := e.batches[id]; b != nil {
		delete(e.batches, id)
		e.drop(b)
	}
}

func (e *CutModel) drop(b *batch) {
	// An error is one of the device, which whoever uses it next is told.
	_ = e.settle()
	b.close(e.device)
	e.giveFrame(b.frame, b.key)
	b.frame = nil
}

// IntermediateBytes returns the memory held for intermediates: of running and
// paused batches, and what is kept for the next ones.
func (e *CutModel) IntermediateBytes() int64 {
	total := e.used
	for _, b := range e.batches {
		total += b.bytes
	}
	return total
}

// LiveBytes returns, for each operator, the bytes of intermediates alive after
// it in a batch of the given size, nil if no such batch has run.
func (e *CutModel) LiveBytes(size int) []int64 {
	for _, entry := range e.layouts {
		if entry.size == size {
			return entry.layout.live
		}
	}
	return nil
}

// Batches returns the number of batches that were started and neither
// finished nor released.
func (e *CutModel) Batches() int { return len(e.batches) }

// learn makes a layout of what the run of b taught.
func (e *CutModel) learn(b *batch) {
	if e.layouts[b.key] != nil {
		return
	}
	var gathered []int32
	for _, id := range e.inputs {
		if b.key.gathered && b.shapes[id].known {
			gathered = append(gathered, id)
		}
	}
	l := newLayout(e.cut, b.shapes, gathered,
		layoutOptions{inPlace: !e.ablation.NoInPlace, noReuse: e.ablation.NoReuse, far: e.device.far()})
	e.forgetOldLayouts()
	e.clock++
	e.layouts[b.key] = &layoutEntry{layout: l, size: b.size, used: e.clock}
	if b.size == 1 && len(b.sizes) == 1 {
		for p := range e.model.Operators {
			e.model.Operators[p].LiveBytes = l.live[p]
		}
	}
}

func (e *CutModel) forgetOldLayouts() {
	for len(e.layouts) >= maxLayouts {
		var oldest layoutKey
		var entry *layoutEntry
		for k, en := range e.layouts {
			if entry == nil || en.used < entry.used {
				oldest, entry = k, en
			}
		}
		delete(e.layouts, oldest)
		for i := len(e.idle) - 1; i >= 0; i-- {
			if e.idle[i].layout == entry.layout {
				e.closeIdle(i)
			}
		}
	}
}

// Close frees everything the engine holds.
func (e *CutModel) Close() error {
	for id := range e.batches {
		e.Release(id)
	}
	for len(e.idle) > 0 {
		e.closeIdle(0)
	}
	var errs []error
	for _, s := range e.sessions {
		errs = append(errs, s.Close())
	}
	e.sessions = nil
	e.unpin()
	if e.runOptions != nil {
		e.runOptions.Close()
	}
	return errors.Join(errs...)
}
