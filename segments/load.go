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

// loaded is a model that was optimized and cut, with a session of each piece. Once
// it is loaded it does not change, but for the live bytes of its operators.
type loaded struct {
	env       *ort.Env
	device    device
	far       bool    // the device has memory of its own
	slow      float64 // by which factor operators take longer
	model     models.Model
	convolves bool // the model has convolutions
	cut       *cutting
	sessions  []*ort.Session
	rungs     int              // how many sizes of the ladder have sessions of their own
	more      [][]*ort.Session // by rung from the second on: those for convolutions, and else the first
	oneThread []*ort.Session   // the same for a single thread, none if that is not asked for
	weights   weights
	types     []models.Type // by value, as its session reports it
	known     []knowledge   // by value
	inputs    []int32       // values of the model's inputs, in its order
	outputs   []int32       // values of the model's outputs, in its order
	batchDims []int         // by input, its batch dimension, -1 if none
	uses      [][]use       // by input, where it is used
	made      []use         // by value, where it is made; piece is -1 for the model's inputs
	hostHome  []bool        // by value, whether it lies in the host's memory; of a device only
	waits     []bool        // by piece, whether the device must have come that far before it runs
	memory    wire.DeviceMemory
	identity  *identity
	cacheHit  bool
	loadTook  time.Duration
}

// use is a place where a value enters or leaves a session.
type use struct{ piece, pos int }

// load loads the model through the cache of optimized models, or without it where that
// has no room: every start takes longer then, and that is all.
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
		// A cached file that does not load is worth one more try from the
		// model itself: the disk may have been full when it was written.
		os.Remove(path)
		_ = m.closeSessions() // they are made anew
		if path, err = m.optimize(file, c); err == nil {
			err = m.loadOptimized(file, path, c)
		}
	}
	return err
}

// read opens the model and reads what is known of it before it is optimized.
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

// optimize returns the path of the optimized form of the model. Neither the pages of the
// model nor what ONNX Runtime took for optimizing it stay in memory.
func (m *loaded) optimize(file *models.File, c Config) (string, error) {
	c.Progress("optimize", 0, 1)
	path, hit, err := optimize(m.env, m.device, file, m.identity, c.CacheDir)
	m.cacheHit = hit
	file.Forget()
	m.env.Trim()
	return path, err
}

// loadOptimized cuts the optimized form of a model, the file at path, and makes the sessions.
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
	// Only now the types of all values are known.
	if joined := m.cut.optionals(m.types); len(joined) > 0 {
		_ = m.closeSessions() // they are made anew
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
	if m.far { // ONNX Runtime has read the weights by name
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

// findEnds maps the inputs and outputs of the model to values of the optimized
// graph.
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
			return fmt.Errorf("%s: input %q is gone after optimization", f.Path, in.Name)
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

// manyBytes is how large the weights of a piece are whose pages of the file do not stay
// in memory while the others are loaded: with what ONNX Runtime makes of them they add up.
const manyBytes = 1 << 20

// makeSessions loads every piece, in order: a session knows the types of
// its outputs, which are the input types of later ones.
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

// sessionWork is what making a session without weights counts beside bytes of weights in
// the progress of loading.
const sessionWork = 64 << 10

// loadWork is how much of the sessions is made: bytes of weights, once for copying them and
// once for the sessions that use them.
type loadWork struct {
	progress    worker.ProgressFunc
	done, total int64
}

func (m *loaded) work(progress worker.ProgressFunc) *loadWork {
	total := int64(len(m.weights.memory)) + int64(len(m.cut.pieces))*sessionWork
	for p := range m.cut.pieces {
		total += m.cut.weightsOf(p)
	}
	progress("load", 0, total)
	return &loadWork{progress, 0, total}
}

func (w *loadWork) add(bytes int64) {
	w.done += bytes
	w.progress("load", w.done, w.total)
}

// newFixed makes the session of a piece, and has it take CUDA graphs if it can.
func (m *loaded) newFixed(raw []byte, p int, options *ort.SessionOptions, c Config) (*ort.Session, error) {
	pc := &m.cut.pieces[p]
	pc.fixed = pc.fixed && c.Device != nil && c.Device.graphs
	if !pc.fixed || options.CUDA == nil {
		return m.env.NewSession(raw, *options)
	}
	options.CUDA.Graphs = true
	s, err := m.env.NewSession(raw, *options)
	if err != nil { // an operator has no kernel for the GPU, or it is refused without graphs, too
		options.CUDA.Graphs, pc.fixed = false, false
		s, err = m.env.NewSession(raw, *options)
	}
	return s, err
}

// refused is why a piece cannot be loaded.
func (m *loaded) refused(p int, err error) error {
	op := m.cut.operator(p)
	return fmt.Errorf("operator %d (%s %q): ONNX Runtime cannot load it alone: %w", p, op.Type, op.Name, err)
}

// tidy gives memory back once the sessions of a piece with many bytes of weights are made:
// pages of the file, and what ONNX Runtime packed for the second session, only to find the
// first one's.
func (m *loaded) tidy(p int) {
	if m.cut.weightsOf(p) >= manyBytes {
		m.cut.file.Forget()
		m.env.Trim()
	}
}

// setOf returns the number of the set of sessions that runs batches of a size, which is its
// rung: ONNX Runtime's convolutions on CUDA keep one plan of cuDNN, for the shape of their
// last call. A size off the ladder runs in the set of the next one, a larger one in the last.
func (m *loaded) setOf(size int) int { return min(models.Rung(size), len(m.more)) }

// set returns a set of sessions, one for each piece.
func (m *loaded) set(n int) []*ort.Session {
	if n == 0 {
		return m.sessions
	}
	return m.more[n-1]
}

// lasting are the reasons for which ONNX Runtime refuses a model that it would refuse
// again. A failure without a better name is one as well, unless its message has one of
// the words that speak of memory, of the disk or of a GPU.
var lasting = []string{"invalid argument", "no model", "invalid protobuf", "not implemented", "invalid graph"}

var passing = []string{"bad_alloc", "allocat", "serialization", "No space", "write", "CUDA", "CUDNN", "CUBLAS"}

// unservable is an error that another try would end in as well. It reads as what it
// wraps, and is wire.ErrModel.
type unservable struct{ error }

func (e unservable) Unwrap() []error { return []error{wire.ErrModel, e.error} }

// judge returns err, as unservable if the model is at fault.
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
