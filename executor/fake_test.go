package executor

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
	segworker "github.com/overlapd/overlapd/segments/worker"
)

// fakeEngine is the engine of the test binary's own workers. A model has
// fakeOperators operators; a query's input is a text, its output the same text
// with every operator that ran appended. A text of the form "OP VERB ARG" makes
// operator OP do something bad.
type fakeEngine struct {
	choice *wire.CutChoice

	mu      sync.Mutex // guards batches
	batches map[models.BatchID]*fakeBatch
}

// batch returns a batch, and set adds it.
func (e *fakeEngine) batch(id models.BatchID) *fakeBatch {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.batches[id]
}

func (e *fakeEngine) set(id models.BatchID, b *fakeBatch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches[id] = b
}

type fakeBatch struct {
	texts [][]byte
	moved []byte // what ran elsewhere
	ran   string
}

const fakeOperators = 4

var fakeInfo = wire.Info{
	Inputs:    []models.TensorSpec{{Name: "in", Type: models.TensorType(models.Uint8, models.Dim{Value: -1})}},
	Outputs:   []models.TensorSpec{{Name: "out", Type: models.TensorType(models.Uint8, models.Dim{Value: -1})}},
	Operators: make([]models.Operator, fakeOperators),
	Hash:      "fake",
}

// loadFake does what the model path says.
func loadFake(spec wire.LoadSpec, _ segworker.Memory, progress segworker.ProgressFunc) (segworker.Engine, error) {
	progress("fake", 1, 1)
	switch verb, arg, _ := strings.Cut(spec.ModelPath, " "); verb {
	case "fail":
		return nil, errors.New(arg)
	case "full":
		return nil, fmt.Errorf("%w: %s", wire.ErrDeviceFull, arg)
	case "env":
		return nil, errors.New(arg + " is " + os.Getenv(arg))
	case "":
	default:
		misbehave(verb, arg, 0)
	}
	return &fakeEngine{choice: fakeChoice(spec.Choose), batches: map[models.BatchID]*fakeBatch{}}, nil
}

// fakeChoice answers a question at once.
func fakeChoice(asked *wire.ChooseSpec) *wire.CutChoice {
	if asked == nil {
		return nil
	}
	if asked.Known != nil {
		return &wire.CutChoice{Target: asked.Known.Target, Reason: "known"}
	}
	return &wire.CutChoice{Target: asked.Finest, Costs: []wire.CutCost{{Segments: asked.Finest}}, Reason: "measured"}
}

func (e *fakeEngine) Info() wire.Info {
	info := fakeInfo
	info.Cut = e.choice
	return info
}

func (e *fakeEngine) Start(id models.BatchID, queries []wire.QueryTensors) error {
	e.set(id, &fakeBatch{texts: textsOf(queries)})
	return nil
}

// textsOf returns the texts of queries, whose list is valid only during a call.
func textsOf(queries []wire.QueryTensors) (list [][]byte) {
	for _, q := range queries {
		list = append(list, q.Inputs[0].Data)
	}
	return list
}

// Run adds the number of each operator to the outputs, with a mark for each unit of its
// share.
func (e *fakeEngine) Run(id models.BatchID, start, end, share int, stop *uint32, out segworker.OutputFunc) (ran segworker.Ran, err error) {
	b := e.batch(id)
	op := start
	for ; op < end && atomic.LoadUint32(stop) == 0; op++ {
		for _, text := range b.texts {
			if err := e.obey(string(text), op, id); err != nil {
				return ran, err
			}
		}
		b.ran += strconv.Itoa(op) + strings.Repeat("'", share)
	}
	if op == fakeOperators {
		err = e.finish(id, out)
	}
	return segworker.Ran{Reached: op}, err
}

func (e *fakeEngine) obey(text string, op int, id models.BatchID) error {
	at, rest, _ := strings.Cut(text, " ")
	if at != strconv.Itoa(op) {
		return nil
	}
	verb, arg, _ := strings.Cut(rest, " ")
	if verb == "fail" {
		return fmt.Errorf("told to: %s", arg)
	}
	if verb == "device" {
		return fmt.Errorf("%w: %s", wire.ErrDeviceLost, arg)
	}
	misbehave(verb, arg, id)
	return nil
}

func (e *fakeEngine) finish(id models.BatchID, out segworker.OutputFunc) error {
	b := e.batch(id)
	for i, given := range b.texts {
		text := string(given) + string(b.moved) + b.ran
		data, err := out(i, 0, models.Uint8, []int64{int64(len(text))}, int64(len(text)))
		if err != nil {
			return err
		}
		copy(data, text)
	}
	e.Release(id)
	return nil
}

// The steps of a move, as operators that a text may name.
const (
	atDescribe = 10 + iota
	atExport
	atImport
)

// Describe tells of one value, which is what has run so far.
func (e *fakeEngine) Describe(id models.BatchID) ([]models.Tensor, uint64, error) {
	b := e.batch(id)
	if err := e.obeyAll(b, atDescribe, id); err != nil {
		return nil, 0, err
	}
	n := int64(len(b.moved) + len(b.ran))
	if string(b.texts[0]) == "huge" {
		n = 1 << 50
	}
	return []models.Tensor{{Type: models.Uint8, Shape: []int64{n}, Bytes: n}}, 7, nil
}

func (e *fakeEngine) Export(id models.BatchID, to []models.Tensor) error {
	b := e.batch(id)
	copy(to[0].Data, string(b.moved)+b.ran)
	return e.obeyAll(b, atExport, id)
}

// Import uses the value where it lies, unless the text says that it is to be copied.
func (e *fakeEngine) Import(id models.BatchID, at int, queries []wire.QueryTensors, cut uint64, values []models.Tensor) (bool, error) {
	b := &fakeBatch{texts: textsOf(queries), moved: values[0].Data}
	e.set(id, b)
	if err := e.obeyAll(b, atImport, id); err != nil {
		return false, err
	}
	copied := strings.Contains(string(queries[0].Inputs[0].Data), "copies")
	if copied {
		b.ran, b.moved = string(b.moved), nil
	}
	return copied, nil
}

func (e *fakeEngine) obeyAll(b *fakeBatch, op int, id models.BatchID) error {
	for _, text := range b.texts {
		if err := e.obey(string(text), op, id); err != nil {
			return err
		}
	}
	return nil
}

func (e *fakeEngine) Release(id models.BatchID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.batches, id)
}

func (e *fakeEngine) IntermediateBytes() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return 100 * int64(len(e.batches))
}

func (e *fakeEngine) Trim() {}

func (e *fakeEngine) Close() error { return nil }

// socketFD is where the test's worker finds its socket, to say what an honest
// worker does not.
const socketFD = 3

// hang does not return. A select without cases would end a process in which
// nothing else runs.
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}

// misbehave does verb, in a worker.
func misbehave(verb, arg string, id models.BatchID) {
	switch verb {
	case "sleep":
		d, err := time.ParseDuration(arg)
		if err != nil {
			panic(err)
		}
		time.Sleep(d)
	case "await", "signal": // a file to appear
		if verb == "signal" {
			fmt.Fprintln(os.Stderr, "waiting")
		}
		for range 10_000 {
			if _, err := os.Stat(arg); err == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	case "exit":
		code, _ := strconv.Atoi(arg)
		os.Exit(code)
	case "panic":
		panic(arg)
	case "kill":
		unix.Kill(os.Getpid(), unix.SIGKILL)
		hang()
	case "segv":
		page, _ := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
		page[0] = 1
	case "hang":
		hang()
	case "spin":
		for n := 0; ; n++ {
		}
	case "say":
		fmt.Fprintln(os.Stderr, arg)
	case "progress": // as fast as the socket takes it, and then exit
		frame, err := wire.AppendFrame(nil, &wire.Progress{Phase: "a flood", Total: 1})
		if err != nil {
			panic(err)
		}
		for range 20 * progressBurst {
			unix.Write(socketFD, frame)
		}
		os.Exit(1)
	case "flood":
		for i := range 3000 {
			fmt.Fprintln(os.Stderr, "line", i)
		}
	case "close": // the socket, and stay
		unix.Shutdown(socketFD, unix.SHUT_RDWR)
		hang()
	case "regroup": // join the daemon's group, and stay
		group, _ := unix.Getpgid(os.Getppid())
		if err := unix.Setpgid(0, group); err != nil {
			panic(err)
		}
		hang()
	case "garbage":
		unix.Write(socketFD, []byte(strings.Repeat("\xff\x00garbage", 100)))
		hang()
	case "lie":
		lie(arg, id)
		hang()
	}
}

// lie sends an answer that the daemon must not believe. The first round of a
// test is number 1.
func lie(about string, id models.BatchID) {
	out := wire.OutputTensor{Tensor: models.Tensor{Type: models.Uint8, Shape: []int64{4}, Bytes: 4}}
	done := &wire.Done{Round: 1, Batch: id, Reached: fakeOperators, Outputs: [][]wire.OutputTensor{{out}}}
	var m wire.Message = done
	first := &done.Outputs[0][0]
	switch about {
	case "round":
		done.Round = 99
	case "batch":
		done.Batch++
	case "offset":
		first.Offset = 1 << 40
	case "length":
		first.Bytes, first.Shape = 1<<40, []int64{1 << 40}
	case "slot":
		first.Slot = wire.MaxSlots
	case "shape":
		first.Shape = []int64{5}
	case "type":
		first.Type = models.Int8
	case "type as large":
		first.Type, first.Shape = models.Float32, []int64{1}
	case "overlap":
		done.Outputs[0] = append(done.Outputs[0], out)
		done.Outputs[0][1].Slot = 1
	case "outputs":
		done.Outputs[0] = nil
	case "queries":
		done.Outputs = append(done.Outputs, nil)
	case "reached":
		done.Reached, done.Outputs = 1, nil
	case "beyond":
		done.Reached = fakeOperators + 1
	case "unfinished":
		done.Outputs = nil
	case "time": // of the device, and no lie else
		done.DeviceNanos = 1 << 62
	case "hello":
		m = &wire.Hello{}
	case "failed":
		m = &wire.Failed{Round: 7, Batch: id}
	case "moved":
		m = &wire.Moved{Round: 1, Batch: id}
	case "move done":
		done.Round = moveRound
	case "move of another":
		m = &wire.Moved{Round: moveRound + 1, Batch: id}
	case "move of a shape":
		m = &wire.Moved{Round: moveRound, Batch: id, Values: []models.Tensor{{Type: models.Float32, Shape: []int64{4}, Bytes: 4}}}
	case "move of a type":
		m = &wire.Moved{Round: moveRound, Batch: id, Values: []models.Tensor{{Type: 77, Shape: []int64{4}, Bytes: 4}}}
	case "move": // more values than there can be
		d := wire.Moved{Round: moveRound, Batch: id, Values: make([]models.Tensor, wire.MaxTensors)}
		frame, _ := wire.AppendFrame(nil, &d)
		frame[4+1+8+8+8+1]++
		unix.Write(socketFD, frame)
		return
	}
	frame, err := wire.AppendFrame(nil, m)
	if err != nil {
		panic(err)
	}
	unix.Write(socketFD, frame)
}

var lies = []string{
	"round", "batch", "offset", "length", "slot", "shape", "type", "type as large", "overlap", "outputs", "queries",
	"reached", "beyond", "unfinished", "hello", "failed", "moved",
}

var liesOfMoves = []string{"move done", "move of another", "move of a shape", "move of a type", "move"}

// moveRound is the number of a test's moves.
const moveRound = 99
