package segments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// loaded is a model that is optimized and cut, with a session for each piece. It does not
// change after loading, except for the live bytes of its operators.
type loaded struct {
	env    *ort.Env
	device device

	// far is set if the device has memory of its own.
	far bool

	// slow is the factor by which operators take longer.
	slow float64

	model models.Model

	// convolves is set if the model has convolutions.
	convolves bool

	cut      *cutting
	sessions []*ort.Session

	// rungs is how many batch sizes of the ladder have sessions of their own. more holds
	// the sessions for the sizes from the second on. Only pieces with convolutions have
	// separate sessions; the others share the first.
	rungs int
	more  [][]*ort.Session

	// oneThread holds a second session for each piece, which runs on one thread. It is nil
	// unless the configuration asks for it.
	oneThread []*ort.Session

	weights weights

	// types holds the type of each value as reported by its session. known holds what
	// follows about each value from the shapes of the inputs.
	types []models.Type
	known []knowledge

	// inputs and outputs are the values of the model's inputs and outputs, in the model's
	// order.
	inputs  []int32
	outputs []int32

	// batchDims holds the position of the batch dimension of each input, or -1 if it has
	// none.
	batchDims []int

	// uses lists for each input where it is used. made says for each value which piece
	// produces it; the piece is -1 for inputs of the model.
	uses [][]use
	made []use

	// hostHome says for each value whether it lies in the host's memory. It is set only for
	// a GPU.
	hostHome []bool

	// waits says for each piece whether the device must finish the queued work before the
	// piece runs.
	waits []bool

	memory   wire.DeviceMemory
	identity *identity
	cacheHit bool
	loadTook time.Duration
}

// use is a place where a value enters or leaves a session: a piece, and the position among
// its inputs or outputs.
type use struct{ piece, pos int }

// load loads the model through the cache of optimized models. If the cache cannot be
// written, it loads the model without it, which makes every start slower.
func (m *loaded) load(c Config) error {
	started := time.Now()
	err := m.loadThrough(c)
	if errors.Is(err, errCache) {
		folder, inMemory := uncached()
		if inMemory != nil {
			return errors.Join(err, inMemory)
		}
		defer os.RemoveAll(folder)
		fmt.Fprintf(os.Stderr, "overlapd worker: warning: %v; the model is served uncached and optimized again at every start: free space there\n", err)
		c.CacheDir = folder
		err = m.loadThrough(c)
	}
	m.loadTook = time.Since(started)
	return err
}

// loadThrough loads the model through the cache in c.CacheDir.
func (m *loaded) loadThrough(c Config) (err error) {
	file, err := m.read(c)
	if err != nil {
		return err
	}
	defer func() {
		m.identity.end()
		if len(m.weights.files) == 0 {
			file.Close()
		}
	}()
	path, err := m.optimize(file, c)
	if err != nil {
		return err
	}
	err = m.device.fault(m.loadOptimized(file, path, c))
	if err != nil && m.cacheHit && !errors.Is(err, wire.ErrDeviceFull) && !wire.Ends(err) {
		// The cached file may be damaged, for example because the disk was full when it was
		// written. Optimize the model again.
		os.Remove(path)
		_ = m.closeSessions() // the next attempt creates them again
		if path, err = m.optimize(file, c); err == nil {
			err = m.loadOptimized(file, path, c)
		}
	}
	return err
}

// read opens the model and determines what is known before it is optimized.
func (m *loaded) read(c Config) (*models.File, error) {
	c.Progress("read", 0, 1)
	file, err := models.Open(c.Path)
	if err != nil {
		return nil, err
	}
	if err := file.CheckOperators(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	for _, change := range file.Changes {
		fmt.Fprintln(os.Stderr, change)
	}
	m.identity = identify(file, c.Progress)
	m.model = *file.Model(m.identity.known())
	m.convolves = slices.ContainsFunc(file.Graph.Nodes, func(n models.Node) bool { return n.Convolves() })
	m.batchDims = models.BatchDims(m.model.Inputs).Batch
	return file, nil
}

// optimize returns the path of the optimized form of the model. Afterwards neither the
// pages of the model nor the memory that ONNX Runtime used for optimizing stay resident.
func (m *loaded) optimize(file *models.File, c Config) (string, error) {
	c.Progress("optimize", 0, 1)
	path, hit, err := optimize(m.env, m.device, file, m.identity, c.CacheDir)
	m.cacheHit = hit
	file.Forget()
	m.env.Trim()
	return path, err
}

// loadOptimized cuts the optimized form at path and creates the sessions.
func (m *loaded) loadOptimized(model *models.File, path string, c Config) error {
	c.Progress("cut", 0, 1)
	file, err := model.OpenDerived(path)
	if err != nil {
		return err
	}
	defer func() {
		if len(m.weights.files) == 0 {
			file.Close()
		}
	}()
	if err := m.cutAndLoad(file, c, nil); err != nil {
		return err
	}
	// The types of all values are known only now.
	if joined := m.cut.optionals(m.types); len(joined) > 0 {
		_ = m.closeSessions() // cutAndLoad creates them again
		if err := m.cutAndLoad(file, c, joined); err != nil {
			return err
		}
	}
	if err := m.device.findHomes(m); err != nil {
		return err
	}
	if m.model.Hash, err = m.identity.confirm(path); err != nil {
		return err
	}
	if m.far { // ONNX Runtime has opened the file of the weights by name
		if err := model.Unchanged(); err != nil {
			return err
		}
	} else {
		file.Forget()
		m.weights.files = []*models.File{file, model}
	}
	m.cut.file, m.cut.parts, m.cut.inits = nil, nil, nil
	return nil
}

// cutAndLoad cuts the graph of file, without borders in the joined ranges, and creates the
// sessions.
func (m *loaded) cutAndLoad(file *models.File, c Config, joined []nodes) (err error) {
	if m.cut, err = cut(file, c.Target, joined); err != nil {
		return err
	}
	m.known = trace(file, m.cut.values)
	m.types = make([]models.Type, len(m.cut.values.Names))
	if err := m.findEnds(file); err != nil {
		return err
	}
	if err := m.device.admit(m); err != nil {
		return err
	}
	return m.makeSessions(c)
}

// findEnds maps the inputs and outputs of the model to values of the optimized graph.
func (m *loaded) findEnds(f *models.File) error {
	m.inputs, m.outputs = nil, nil
	for _, in := range f.Graph.Inputs {
		if id, ok := m.cut.values.ID(in.Name); ok {
			m.types[id] = in.Type
		}
	}
	for _, in := range m.model.Inputs {
		id, ok := m.cut.values.ID(in.Name)
		if !ok {
			return fmt.Errorf("%s: input %q is missing after optimization", f.Path, in.Name)
		}
		m.inputs = append(m.inputs, int32(id))
	}
	if len(f.Graph.Outputs) != len(m.model.Outputs) {
		return fmt.Errorf("%s: %d outputs after optimization, %d before", f.Path, len(f.Graph.Outputs), len(m.model.Outputs))
	}
	for _, out := range f.Graph.Outputs {
		id, ok := m.cut.values.ID(out.Name)
		if !ok || m.cut.values.Producer[id] < 0 {
			return fmt.Errorf("%s: no operator produces output %q", f.Path, out.Name)
		}
		m.outputs = append(m.outputs, int32(id))
	}
	return nil
}

// manyBytes is the size of weights from which tidy frees memory after a piece is loaded.
// Without that, the pages of the file and ONNX Runtime's copies of the weights would
// accumulate.
const manyBytes = 1 << 20

// makeSessions loads all pieces in order. The order matters because the types of a
// session's outputs are known only once it is loaded, and later pieces need them as input
// types.
func (m *loaded) makeSessions(c Config) (err error) {
	folder, location := m.cut.file.Folder(), ""
	if !m.far {
		if err := m.holdWeights(m.cut.file); err != nil {
			return err
		}
		folder, location = filepath.Split(m.cut.file.Path)
	}
	m.model.Operators = nil
	m.more = make([][]*ort.Session, m.rungs-1)
	m.uses = make([][]use, len(m.inputs))
	inputOf := make(map[int32]int, len(m.inputs))
	for i, id := range m.inputs {
		inputOf[id] = i
	}
	m.made = make([]use, len(m.types))
	for id := range m.made {
		m.made[id].piece = -1
	}
	work := m.work(c.Progress)
	var seconds *seconds
	if c.OneThread {
		seconds = startSeconds(m)
		defer func() { err = errors.Join(err, seconds.end()) }()
	}
	for p := range m.cut.pieces {
		raw := m.cut.appendModel(nil, p, m.types, m.weights.held, location)
		options := ort.SessionOptions{Folder: folder}
		m.device.Session(&options, m.cut.halfConv(p))
		options.Weights = m.weights.of(m.cut, &m.cut.pieces[p], work.add)
		if c.OneThread {
			options.SharePacked = seconds.set(p)
		}
		s, err := m.newFixed(raw, p, &options, c)
		if err != nil {
			return m.refused(p, err)
		}
		m.sessions = append(m.sessions, s)
		if c.OneThread {
			seconds.wanted <- second{p, raw, options}
		} else {
			m.tidy(p)
		}
		for i := range m.more {
			if m.cut.pieces[p].convolves {
				if s, err = m.env.NewSession(raw, options); err != nil {
					return err
				}
			}
			m.more[i] = append(m.more[i], s)
		}
		work.add(m.cut.weightsOf(p) + sessionWork)
		m.model.Operators = append(m.model.Operators, m.cut.operator(p))
		for i, id := range m.cut.pieces[p].outputs {
			m.made[id] = use{p, i}
			m.types[id] = s.Outputs()[i].Type
		}
		for pos, id := range m.cut.pieces[p].inputs {
			if i, ok := inputOf[id]; ok {
				m.uses[i] = append(m.uses[i], use{p, pos})
			}
		}
	}
	work.add(work.total - work.done)
	return nil
}

// sessionWork is the cost of creating a session without weights, as a number of bytes in
// the progress of loading.
const sessionWork = 64 << 10

// loadWork is the progress of creating the sessions. It counts bytes of weights, once when
// they are copied and once when a session that uses them is created.
type loadWork struct {
	progress    worker.ProgressFunc
	done, total int64
}

// work returns the progress of loading with nothing done.
func (m *loaded) work(progress worker.ProgressFunc) *loadWork {
	total := int64(len(m.weights.memory)) + int64(len(m.cut.pieces))*sessionWork
	for p := range m.cut.pieces {
		total += m.cut.weightsOf(p)
	}
	progress("load", 0, total)
	return &loadWork{progress, 0, total}
}

// add counts work as done and reports the progress.
func (w *loadWork) add(bytes int64) {
	w.done += bytes
	w.progress("load", w.done, w.total)
}

// newFixed creates the session of a piece, with CUDA graphs enabled if the piece and the
// session allow it.
func (m *loaded) newFixed(raw []byte, p int, options *ort.SessionOptions, c Config) (*ort.Session, error) {
	pc := &m.cut.pieces[p]
	pc.fixed = pc.fixed && c.Device != nil && c.Device.graphs
	if !pc.fixed || options.CUDA == nil {
		return m.env.NewSession(raw, *options)
	}
	options.CUDA.Graphs = true
	s, err := m.env.NewSession(raw, *options)
	if err != nil { // an operator has no kernel for the GPU, or the session fails without graphs as well
		options.CUDA.Graphs, pc.fixed = false, false
		s, err = m.env.NewSession(raw, *options)
	}
	return s, err
}

// refused returns the error for a piece that cannot be loaded.
func (m *loaded) refused(p int, err error) error {
	op := m.cut.operator(p)
	return fmt.Errorf("operator %d (%s %q): ONNX Runtime cannot load it alone: %w", p, op.Type, op.Name, err)
}

// tidy frees memory once all sessions of a piece with large weights are created: the pages
// of the file, and the weights that ONNX Runtime packed for the second session before it
// found those of the first.
func (m *loaded) tidy(p int) {
	if m.cut.weightsOf(p) >= manyBytes {
		m.cut.file.Forget()
		m.env.Trim()
	}
}

// setOf returns the index of the set of sessions that runs batches of a size. Each rung of
// the ladder has a set, because ONNX Runtime's CUDA convolutions keep a single cuDNN plan,
// for the shape of their last call. A size between two rungs uses the set of the larger
// one, and a size beyond the last rung uses the last set.
func (m *loaded) setOf(size int) int { return min(models.Rung(size), len(m.more)) }

// set returns the set of sessions with index n, one session for each piece.
func (m *loaded) set(n int) []*ort.Session {
	if n == 0 {
		return m.sessions
	}
	return m.more[n-1]
}

// lasting are codes of ONNX Runtime's errors for a model that it would reject again. An
// error with the general code "fail" counts as lasting, too, unless its message contains
// one of the words in passing, which indicate a problem with memory, the disk or the GPU.
var lasting = []string{"invalid argument", "no model", "invalid protobuf", "not implemented", "invalid graph"}

var passing = []string{"bad_alloc", "allocat", "serialization", "No space", "write", "CUDA", "CUDNN", "CUBLAS"}

// unservable marks an error that another attempt to load would return as well. It has the
// message of the error that it wraps, and is also wire.ErrModel.
type unservable struct{ error }

func (e unservable) Unwrap() []error { return []error{wire.ErrModel, e.error} }

// judge returns err, wrapped as unservable if the model itself is the cause.
func judge(err error) error {
	lasts := errors.Is(err, ErrUnservable) || models.Refused(err)
	var said *ort.Error
	if errors.As(err, &said) {
		passes := func(word string) bool { return strings.Contains(said.Message, word) }
		lasts = slices.Contains(lasting, said.Code) || said.Code == "fail" && !slices.ContainsFunc(passing, passes)
	}
	if !lasts || errors.Is(err, wire.ErrDeviceFull) || wire.Ends(err) {
		return err
	}
	return unservable{err}
}

// closeSessions closes each session once, although a session may be part of several sets,
// and then the weights.
func (m *loaded) closeSessions() error {
	var errs []error
	own := slices.Concat(m.sessions, m.oneThread)
	for _, set := range m.more {
		for p, s := range set {
			if s != m.sessions[p] {
				own = append(own, s)
			}
		}
	}
	for _, s := range own {
		errs = append(errs, s.Close())
	}
	m.sessions, m.more, m.oneThread = nil, nil, nil
	errs = append(errs, m.weights.close())
	return errors.Join(errs...)
}
