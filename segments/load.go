package segments

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// loader loads a model. Its model is complete once load returns nil.
type loader struct {
	config   Config
	model    *loaded
	identity *identity
}

// load loads the model through the cache of optimized models. If the cache cannot be
// written, it loads the model without it, which makes every start slower.
func (l *loader) load() error {
	started := time.Now()
	err := l.loadThrough()
	if errors.Is(err, errCache) {
		folder, inMemory := uncached(cmp.Or(l.config.memoryDir, memoryDir))
		if inMemory != nil {
			return errors.Join(err, inMemory)
		}
		defer os.RemoveAll(folder)
		fmt.Fprintf(os.Stderr, "overlapd worker: warning: %v; the model is served uncached and optimized again at every start: free space there\n", err)
		l.config.CacheDir = folder
		err = l.loadThrough()
	}
	l.model.loadTook = time.Since(started)
	return err
}

// loadThrough loads the model through the cache in the configured folder.
func (l *loader) loadThrough() (err error) {
	m := l.model
	file, err := l.read()
	if err != nil {
		return err
	}
	defer func() {
		l.identity.end()
		if len(m.weights.files) == 0 {
			file.Close()
		}
	}()
	path, err := l.optimize(file)
	if err != nil {
		return err
	}
	err = m.device.Fault(l.loadOptimized(file, path))
	if err != nil && m.cacheHit && !errors.Is(err, wire.ErrDeviceFull) && !wire.Ends(err) {
		// The cached file may be damaged, for example because the disk was full when it was
		// written. Optimize the model again.
		os.Remove(path)
		_ = m.closeSessions() // the next attempt creates them again
		if path, err = l.optimize(file); err == nil {
			err = l.loadOptimized(file, path)
		}
	}
	return err
}

// read opens the model and determines what is known before it is optimized.
func (l *loader) read() (*models.File, error) {
	l.config.Progress("read", 0, 1)
	file, err := models.Open(l.config.Path)
	if err != nil {
		return nil, err
	}
	libraries, err := models.HashFiles(l.config.OpLibraries)
	if err == nil && libraries == "" {
		err = file.CheckOperators()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	for _, change := range file.Changes {
		fmt.Fprintln(os.Stderr, change)
	}
	m := l.model
	l.identity = identify(file, libraries, l.config.Progress)
	m.model = *file.Model(l.identity.known())
	m.convolves = slices.ContainsFunc(file.Graph.Nodes, func(n models.Node) bool { return n.Convolves() })
	m.batchDims = models.BatchDims(m.model.Inputs).Batch
	return file, nil
}

// optimize returns the path of the optimized form of the model. Afterwards neither the
// pages of the model nor the memory that ONNX Runtime used for optimizing stay resident.
func (l *loader) optimize(file *models.File) (string, error) {
	l.config.Progress("optimize", 0, 1)
	path, hit, err := optimize(l.model.env, l.model.device, file, l.identity, l.config.CacheDir)
	l.model.cacheHit = hit
	file.Forget()
	l.model.env.Trim()
	return path, err
}

// loadOptimized cuts the optimized form at path and creates the sessions.
func (l *loader) loadOptimized(model *models.File, path string) error {
	l.config.Progress("cut", 0, 1)
	file, err := model.OpenDerived(path)
	if err != nil {
		return err
	}
	m := l.model
	defer func() {
		if len(m.weights.files) == 0 {
			file.Close()
		}
	}()
	if err := l.cutAndLoad(file, nil); err != nil {
		return err
	}
	// The types of all values are known only now.
	if joined := m.cut.optionals(m.types); len(joined) > 0 {
		_ = m.closeSessions() // cutAndLoad creates them again
		if err := l.cutAndLoad(file, joined); err != nil {
			return err
		}
	}
	if err := m.device.findHomes(m); err != nil {
		return err
	}
	if m.model.Hash, err = l.identity.confirm(path); err != nil {
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
func (l *loader) cutAndLoad(file *models.File, joined []nodes) (err error) {
	m := l.model
	if m.cut, err = cut(file, l.config.Target, joined); err != nil {
		return err
	}
	m.cut.leastShared = cmp.Or(l.config.leastShared, leastShared)
	m.known = trace(file, m.cut.values)
	m.types = make([]models.Type, len(m.cut.values.Names))
	if err := m.findEnds(file); err != nil {
		return err
	}
	m.more = make([][]*ort.Session, max(l.config.Rungs, 1)-1)
	if err := m.device.admit(m); err != nil {
		return err
	}
	return l.makeSessions()
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
func (l *loader) makeSessions() (err error) {
	m := l.model
	folder, location := m.cut.file.Folder(), ""
	if !m.far {
		if err := m.weights.hold(m.env, m.cut); err != nil {
			return err
		}
		folder, location = filepath.Split(m.cut.file.Path)
	}
	m.model.Operators = nil
	m.uses = make([][]use, len(m.inputs))
	inputOf := make(map[int32]int, len(m.inputs))
	for i, id := range m.inputs {
		inputOf[id] = i
	}
	m.made = make([]use, len(m.types))
	for id := range m.made {
		m.made[id].piece = -1
	}
	add, end := l.work()
	var singles *singles
	if l.config.Units > 1 && !m.far {
		m.shares.plan(l.config.Units, len(m.cut.pieces))
		singles = startSingles(m)
		defer func() { err = errors.Join(err, singles.end()) }()
	}
	for p := range m.cut.pieces {
		raw := m.cut.appendModel(nil, p, m.types, m.weights.held, location)
		options := ort.SessionOptions{Folder: folder, CustomOps: m.cut.pieces[p].custom}
		m.device.Session(&options, m.cut.halfConv(p))
		options.Weights = m.weights.of(m.cut, &m.cut.pieces[p], add)
		if singles != nil {
			options.SharePacked = singles.set(p)
		}
		s, err := l.newFixed(raw, p, &options)
		if err != nil {
			return m.refused(p, err)
		}
		m.sessions = append(m.sessions, s)
		if singles != nil {
			r := recipe{raw, options, m.cut.weightsOf(p)}
			singles.wanted <- r
			if len(m.shares.ladder) > 0 {
				m.shares.recipes = append(m.shares.recipes, r)
			}
		} else {
			m.tidy(m.cut.file, m.cut.weightsOf(p))
		}
		for i := range m.more {
			if m.cut.pieces[p].convolves {
				if s, err = m.env.NewSession(raw, options); err != nil {
					return err
				}
			}
			m.more[i] = append(m.more[i], s)
		}
		add(m.cut.weightsOf(p) + sessionWork)
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
	end()
	return nil
}

// sessionWork is the cost of creating a session without weights, as a number of bytes in
// the progress of loading.
const sessionWork = 64 << 10

// work reports the progress of creating the sessions. It counts bytes of weights, once when
// they are copied and once when a session that uses them is created. With add more bytes are
// done, and with end all are.
func (l *loader) work() (add func(bytes int64), end func()) {
	m, done := l.model, int64(0)
	total := int64(len(m.weights.memory)) + int64(len(m.cut.pieces))*sessionWork
	for p := range m.cut.pieces {
		total += m.cut.weightsOf(p)
	}
	add = func(bytes int64) {
		done += bytes
		l.config.Progress("load", done, total)
	}
	add(0)
	return add, func() { add(total - done) }
}

// newFixed creates the session of a piece, with CUDA graphs enabled if the piece and the
// session allow it.
func (l *loader) newFixed(raw []byte, p int, options *ort.SessionOptions) (*ort.Session, error) {
	env, pc := l.model.env, &l.model.cut.pieces[p]
	pc.fixed = pc.fixed && l.config.Device != nil && l.config.Device.Graphs()
	if !pc.fixed || options.CUDA == nil {
		return env.NewSession(raw, *options)
	}
	options.CUDA.Graphs = true
	s, err := env.NewSession(raw, *options)
	if err != nil { // an operator has no kernel for the GPU, or the session fails without graphs as well
		options.CUDA.Graphs, pc.fixed = false, false
		s, err = env.NewSession(raw, *options)
	}
	return s, err
}

// refused returns the error for a piece that cannot be loaded.
func (m *loaded) refused(p int, err error) error {
	return refusal(p, m.cut.operator(p), err)
}

func refusal(p int, op models.Operator, err error) error {
	return fmt.Errorf("operator %d (%s %q): ONNX Runtime cannot load it alone: %w", p, op.Type, op.Name, err)
}

// tidy frees memory once a session of a piece with large weights in file is created: the
// pages of the file, and the weights that ONNX Runtime packed for a further session before it
// found those of the first.
func (m *loaded) tidy(file *models.File, weights int64) {
	if weights >= manyBytes {
		file.Forget()
		m.env.Trim()
	}
}

// loadNice is the nice value of the threads that load a model. They still get about a tenth
// of a busy core.
const loadNice = 10

// kindly runs f on a thread of low priority. A worker that loads a model, for example after
// a crash, must not delay the queries of other workers.
func kindly(f func() error) error {
	done := make(chan error)
	go func() {
		// The thread is never unlocked, so it ends with its goroutine and no other
		// goroutine runs at its priority.
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), loadNice)
		done <- f()
	}()
	return <-done
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
	lasts := errors.Is(err, ErrUnservable) || errors.Is(err, ort.ErrOpLibrary) || models.Refused(err)
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
