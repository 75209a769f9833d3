package segments

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/gpu"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

var (
	// ErrUnservable is returned if a model cannot be served over the endpoint because an
	// input or output is not a tensor.
	ErrUnservable = errors.New("the model has an input or output that is not a tensor")

	// ErrUnfinished is returned if the caller asks for the outputs of a batch before it has
	// run all operators.
	ErrUnfinished = errors.New("the batch is not finished")
)

// Config describes which model to load, and how.
type Config struct {
	// Path is the ONNX file. CacheDir is the folder of the cache of optimized models.
	Path     string
	CacheDir string

	// Target is the desired number of segments, or 0 for one segment at every node.
	Target int

	// IntermediateBytes is the budget for the intermediates of all batches. 0 is
	// DefaultIntermediateBytes.
	IntermediateBytes int64

	// OpLibraries are the libraries of custom operators with which the Env was created.
	OpLibraries []string

	// Device is nil for the CPU.
	Device *gpu.Device

	// Units is how many spans may run at once, each on a share of the units. It applies only
	// to the CPU; with values up to 1 a span has the whole device.
	Units int

	// Rungs is how many batch sizes of the ladder have sessions of their own. It applies
	// only to a GPU; with values up to 1 all sizes share the same sessions.
	Rungs int

	// Progress may be nil.
	Progress worker.ProgressFunc

	// Tests set memoryDir and leastShared; otherwise the constants of these names apply.
	memoryDir   string
	leastShared int
}

// DefaultIntermediateBytes is the budget for intermediates if Config sets none.
const DefaultIntermediateBytes = 2 << 30

// CutModel runs the operators of one model. It is safe for concurrent use, but calls for one
// batch must not overlap. On a GPU, only one span runs at a time, on one goroutine.
type CutModel struct {
	// mu guards everything. It is not held while operators run on the CPU.
	mu sync.Mutex

	loaded *loaded
	pool   *pool
	run    runner
}

// OpenModel reads, optimizes and cuts a model, and creates a session for each segment.
func OpenModel(env *ort.Env, c Config) (*CutModel, error) {
	if c.Progress == nil {
		c.Progress = func(string, int64, int64) {}
	}
	l := &loaded{env: env, device: hostDevice{env}}
	m := &CutModel{loaded: l}
	l.shares.freed = sync.NewCond(&m.mu)
	m.run = &hostRun{m}
	if c.Device != nil {
		l.device, l.far = gpuDevice{c.Device}, true
		m.run = &deviceRun{m: m, device: c.Device}
	}
	m.pool = newPool(l, c.IntermediateBytes)
	if err := (&loader{config: c, model: l}).load(); err != nil {
		return nil, errors.Join(judge(l.device.Fault(err)), m.Close())
	}
	if l.far {
		m.pool.budget = min(m.pool.budget, l.memory.Room())
	}
	// The serialized form of every segment was on the heap. ONNX Runtime has its own copy
	// of what it needs.
	debug.FreeOSMemory()
	env.Trim()
	return m, nil
}

// Model returns the description of the model.
func (m *CutModel) Model() *models.Model { return &m.loaded.model }

// Start begins batch id with these queries. On the CPU the inputs of a single query are
// used in place. The inputs of several queries are gathered along their batch dimension.
// The inputs must stay valid until the batch is finished or released.
func (m *CutModel) Start(id models.BatchID, queries []wire.QueryTensors) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.begin(id, 0, queries, nil, nil)
	return err
}

// begin begins batch id at an operator, with the values that another engine has exported. It
// reports whether all of these were copied.
func (m *CutModel) begin(id models.BatchID, at int, queries []wire.QueryTensors, ids []int32, values []models.Tensor) (copied bool, err error) {
	if m.pool.batches[id] != nil {
		return true, fmt.Errorf("batch %d: %w", id, wire.ErrBatchExists)
	}
	dims, sizes, err := m.loaded.gather(queries)
	if err != nil {
		return true, err
	}
	// The layout key includes the shapes of the values, so that a wrong shape does not
	// affect other batches.
	given := slices.Clip(dims)
	for i, id := range ids {
		if err := m.loaded.checkValue(id, &values[i]); err != nil {
			return true, err
		}
		if m.loaded.known[id].shape {
			given = append(given, values[i].Shape)
		}
	}
	b, err := m.newBatch(id, at, given, sizes)
	if err != nil {
		return true, err
	}
	err = m.run.start(b, dims, queries)
	copied = true
	for i := 0; i < len(ids) && err == nil; i++ {
		var c bool
		c, err = m.placeValue(b, ids[i], &values[i])
		copied = copied && c
	}
	if err == nil && copied && len(ids) > 0 {
		err = m.run.settle()
	}
	if err != nil {
		m.drop(b)
		return true, m.loaded.device.Fault(err)
	}
	m.pool.batches[id] = b
	return copied, nil
}

// StartValues begins batch id with a value of any kind for each input of the model. The
// caller keeps the values, and must not close them until the batch is finished or released.
func (m *CutModel) StartValues(id models.BatchID, values []*ort.Value) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pool.batches[id] != nil {
		return fmt.Errorf("batch %d: %w", id, wire.ErrBatchExists)
	}
	if len(values) != len(m.loaded.inputs) {
		return fmt.Errorf("%w: %d inputs given, but the model has %d", wire.ErrInput, len(values), len(m.loaded.inputs))
	}
	dims, size := make([][]int64, len(values)), 1
	for i, v := range values {
		dims[i] = v.Shape()
		if i == slices.Index(m.loaded.batchDims, 0) && len(dims[i]) > 0 {
			size = int(dims[i][0])
		}
	}
	b, err := m.newBatch(id, 0, dims, []int{size})
	if err != nil {
		return err
	}
	for i, v := range values {
		m.loaded.bindInput(b, i, v)
	}
	m.pool.batches[id] = b
	return nil
}

// newBatch creates a batch, with a frame, that begins at operator from. dims are the shapes
// of its inputs, and of any values from another worker. sizes are the batch dimensions of
// its queries.
func (m *CutModel) newBatch(batchID models.BatchID, from int, dims [][]int64, sizes []int) (*batch, error) {
	b := &batch{id: batchID, key: layoutKey{signature(dims), len(sizes) > 1 || m.loaded.far, from}, sizes: sizes, size: sum(sizes), next: from}
	l := m.pool.layout(b.key)
	if l == nil {
		b.shapes = make([]shape, len(m.loaded.types))
		for i, id := range m.loaded.inputs {
			bytes := int64(m.loaded.types[id].Elem.Bytes())
			s := shape{dims: dims[i], bytes: elements(dims[i]) * bytes, known: bytes > 0 && m.loaded.known[id].shape}
			if b.shapes[id] = s; b.key.gathered && s.known && b.reads(m.loaded, id) {
				b.planned += s.bytes
			}
		}
	}
	var err error
	b.frame, err = m.pool.take(b, l)
	return b, err
}

// Run is RunShare on all units.
func (m *CutModel) Run(id models.BatchID, start, end int, stop *uint32) (int, error) {
	return m.RunShare(id, start, end, 0, stop)
}

// RunShare runs operators [start, end) of batch id on a share of the units, 0 for all of
// them. It stops at the next operator boundary once *stop is not zero. It returns the
// operator at which the batch continues. After an error in an operator the batch no longer
// exists.
func (m *CutModel) RunShare(id models.BatchID, start, end, share int, stop *uint32) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.pool.batches[id]
	if b == nil {
		return 0, fmt.Errorf("batch %d: %w", id, wire.ErrUnknownBatch)
	}
	if start != b.next || end < start || end > len(m.loaded.cut.pieces) {
		return b.next, fmt.Errorf("batch %d is at operator %d of %d, not ready for [%d, %d): %w",
			id, b.next, len(m.loaded.cut.pieces), start, end, wire.ErrSpanOrder)
	}
	b.units = share
	if err := m.run.span(b, end, stop); err != nil {
		m.release(id)
		if errors.Is(err, wire.ErrMemory) {
			m.pool.trim() // making room for the batch has fragmented the memory
		}
		return b.next, m.explain(b.next, m.loaded.device.Fault(err))
	}
	return b.next, nil
}

// explain adds to an error of ONNX Runtime the operator that failed.
func (m *CutModel) explain(at int, err error) error {
	if at >= len(m.loaded.model.Operators) || m.loaded.far && errors.Is(err, wire.ErrMemory) {
		return err
	}
	if m.loaded.far {
		// An earlier operator that is still queued may be the cause.
		return fmt.Errorf("at or before operator %d: %w", at, err)
	}
	op := m.loaded.model.Operators[at]
	return fmt.Errorf("operator %d (%s %q): %w", at, op.Type, op.Name, err)
}

// Finish splits the outputs of a finished batch among its queries, writes them to the
// memory that out returns, and releases the batch. It releases the batch even if it returns
// an error.
func (m *CutModel) Finish(id models.BatchID, out worker.OutputFunc) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.finished(id)
	if err != nil {
		return err
	}
	defer m.release(id)
	for i := range m.loaded.outputs {
		if err := m.split(b, i, out); err != nil {
			return m.loaded.device.Fault(err)
		}
	}
	return m.loaded.device.Fault(m.run.collect())
}

// split writes the i-th output to the memory of the queries of b.
func (m *CutModel) split(b *batch, i int, out worker.OutputFunc) error {
	name := m.loaded.model.Outputs[i].Name
	v := b.value(m.loaded, m.loaded.outputs[i])
	if v == nil || !v.IsTensor() {
		return fmt.Errorf("%w: output %q is not a tensor", wire.ErrOutput, name)
	}
	elem, dims := v.Elem(), v.Shape()
	if len(b.sizes) > 1 && (len(dims) == 0 || dims[0] != int64(b.size)) {
		return fmt.Errorf("%w: output %q has shape %v and cannot be split among %d queries with a total batch size of %d; set max_batch = 1 for this service",
			wire.ErrOutput, name, dims, len(b.sizes), b.size)
	}
	var text [][]byte
	var from source
	var err error
	if elem != models.String {
		from, err = m.run.open(v, m.loaded.outputs[i])
	} else if err = m.run.settle(); err == nil {
		text, err = v.Strings()
	}
	if err != nil {
		return fmt.Errorf("%w: output %q: %w", wire.ErrOutput, name, err)
	}
	for q := range b.sizes {
		share := b.share(q, dims)
		n := elements(share)
		bytes := n * int64(elem.Bytes())
		if elem == models.String {
			bytes = stringsBytes(text[:n])
		}
		dst, err := out(q, i, elem, share, bytes)
		if err != nil {
			return err
		}
		if elem == models.String {
			putStrings(dst, text[:n])
			text = text[n:]
			continue
		}
		if from, err = m.run.read(dst[:bytes], from); err != nil {
			return err
		}
	}
	return nil
}

// Values lends the outputs of a batch that has run all operators, where they lie. They are
// valid until the batch is released.
func (m *CutModel) Values(id models.BatchID) ([]*ort.Value, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.finished(id)
	if err != nil {
		return nil, err
	}
	values := make([]*ort.Value, len(m.loaded.outputs))
	for i, out := range m.loaded.outputs {
		values[i] = b.value(m.loaded, out)
	}
	return values, m.run.collect()
}

// finished returns batch id, or an error if it has not run all operators.
func (m *CutModel) finished(id models.BatchID) (*batch, error) {
	b := m.pool.batches[id]
	if b == nil {
		return nil, fmt.Errorf("batch %d: %w", id, wire.ErrUnknownBatch)
	}
	if b.next != len(m.loaded.cut.pieces) {
		return nil, fmt.Errorf("batch %d is at operator %d of %d: %w", id, b.next, len(m.loaded.cut.pieces), ErrUnfinished)
	}
	return b, nil
}

// Release releases a batch and its intermediates. It does nothing if there is no such
// batch.
func (m *CutModel) Release(id models.BatchID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.release(id)
}

func (m *CutModel) release(id models.BatchID) {
	if b := m.pool.batches[id]; b != nil {
		delete(m.pool.batches, id)
		m.drop(b)
	}
}

// drop frees what b holds and returns its frame to the pool.
func (m *CutModel) drop(b *batch) {
	// An error is one of the device, and the next call that uses the device returns it.
	_ = m.run.settle()
	b.close(m.loaded.device)
	m.pool.give(b.frame, b.key)
	b.frame = nil
}

// learned creates a layout from what the run of b has shown.
func (m *CutModel) learned(b *batch) {
	if m.pool.layouts[b.key] != nil {
		return
	}
	var gathered []int32
	for _, id := range m.loaded.inputs {
		if b.key.gathered && b.shapes[id].known && b.reads(m.loaded, id) {
			gathered = append(gathered, id)
		}
	}
	for i := range b.moved {
		if id := b.moved[i].id; b.shapes[id].known {
			gathered = append(gathered, id)
		}
	}
	l := newLayout(m.loaded.cut, b.shapes, gathered, m.pool.options)
	l.work = b.work
	// On the CPU a layout that exceeds the budget is not kept, and later batches run as
	// this one did. On a GPU it is always kept, so that take rejects such batches.
	if m.loaded.far || l.bytes+l.work <= m.pool.budget {
		m.pool.remember(b.key, l)
	}
	if b.key.from > 0 {
		return // a batch from another worker does not show the live bytes of all operators
	}
	l.size = b.size
	if b.size == 1 && len(b.sizes) == 1 {
		for p := range m.loaded.model.Operators {
			m.loaded.model.Operators[p].LiveBytes = l.live[p]
		}
	}
}

// DeviceTime returns how long the device took for the last span, from its first operator to
// its last, or to the last copy of an output. It is 0 on the CPU.
func (m *CutModel) DeviceTime() time.Duration { return m.run.took() }

// DeviceMemory returns the GPU memory that the model needs, as far as it is known. The
// intermediates are the most that a layout of a past batch needs. It is zero on the CPU.
func (m *CutModel) DeviceMemory() wire.DeviceMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	needs := m.loaded.memory
	if m.loaded.far {
		for _, l := range m.pool.layouts {
			needs.Intermediates = max(needs.Intermediates, l.bytes)
		}
		if free, _, err := m.loaded.device.Free(); err == nil {
			needs.Taken = needs.Free - free
		}
	}
	return needs
}

// LiveBytes returns for each operator the bytes of intermediates that are live after it in
// a batch of the given size. It returns nil if the layout for that size is not known.
func (m *CutModel) LiveBytes(size int) []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.pool.layouts {
		if l.size == size {
			return l.live
		}
	}
	return nil
}

// IntermediateBytes returns the memory held for intermediates: that of running and paused
// batches, and of frames kept for later batches.
func (m *CutModel) IntermediateBytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pool.bytes()
}

// Trim returns memory that no batch needs to the operating system.
func (m *CutModel) Trim() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pool.trim()
}

// Close frees everything that the engine holds.
func (m *CutModel) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.pool.batches {
		m.release(id)
	}
	m.pool.closeAllIdle()
	return m.loaded.closeSessions()
}
