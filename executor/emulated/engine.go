package emulated

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// Inputs and outputs of the models of an emulated device. They do not resemble
// those of the real models. A query has only what the daemon needs to see, a batch
// size and a sequence length.
const (
	InputName  = "input"
	OutputName = "output"

	// Columns is the number of values for each query of a batch in the output, and
	// in the input of a model without sequences.
	Columns = 4
)

// engine runs the spans of one service by sleeping. It implements [worker.Engine].
type engine struct {
	device *Device

	// ctx ends with the worker.
	ctx   context.Context
	model device.ModelInfo

	// position is that of the model in the device's list.
	position int
	info     wire.Info

	// units is how many spans the worker runs at once.
	units int

	mu struct {
		sync.Mutex

		// batches holds the batch size of each query.
		batches map[models.BatchID][]int64
	}

	// The device's lock guards these fields, so that no wake-up is lost: the
	// goroutine that sets its alarm has seen every change.

	// alarms has one for each span that is awaited, and idle those kept for later ones.
	alarms, idle []*alarm

	// spans were sent and have not ended, in the order of their rounds.
	spans []*span
}

// ringLocked wakes the engine, because a span was sent or stopped.
func (e *engine) ringLocked() {
	for _, a := range e.alarms {
		a.set(0)
	}
}

// describe describes the model as a worker that has loaded it does. The isolated
// latencies of its operators come from the device, for each share of its units.
func describe(m *device.ModelInfo, position, units int, hash string, latency func(models.Group) time.Duration) wire.Info {
	batch := models.Dim{Value: -1, Name: "batch"}
	columns := models.Dim{Value: Columns}
	input := models.TensorType(models.Float32, batch, columns)
	if m.SeqLens[len(m.SeqLens)-1] > 0 {
		input = models.TensorType(models.Int64, batch, models.Dim{Value: -1, Name: "sequence"})
	}
	i := wire.Info{
		Inputs:    []models.TensorSpec{{Name: InputName, Type: input}},
		Outputs:   []models.TensorSpec{{Name: OutputName, Type: models.TensorType(models.Float32, batch, columns)}},
		Operators: make([]models.Operator, m.Operators),
		Hash:      hash,

		Convolutions: true, // the operators are unknown; the device models what each size costs
	}
	for o := range i.Operators {
		i.Operators[o] = models.Operator{Name: fmt.Sprintf("%s/%d", m.Name, o), Type: "emulated", Nodes: 1}
	}
	for share := 0; share < max(units, 1); share = max(2*share, 1) {
		for _, size := range m.Sizes {
			for _, seqLen := range m.SeqLens {
				whole := models.Span{Service: models.ServiceID(position), End: m.Operators, Size: size, SeqLen: seqLen, Share: share}
				i.Solo = append(i.Solo, wire.Solo{Size: size, SeqLen: seqLen, Share: share, Nanos: device.OperatorTimes(latency, whole)})
			}
		}
	}
	return i
}

func (e *engine) Info() wire.Info { return e.info }

func (e *engine) Start(id models.BatchID, queries []wire.QueryTensors) error {
	var sizes []int64
	for _, q := range queries {
		if len(q.Inputs) != 1 || len(q.Inputs[0].Shape) == 0 {
			return fmt.Errorf("%w: query %d has not one input with a batch dimension", wire.ErrInput, q.ID)
		}
		sizes = append(sizes, q.Inputs[0].Shape[0])
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.batches[id] = sizes
	return nil
}

// Run sleeps until the span has ended on the device. It reports the device's time
// as the host's time too, because the delay of waking up is not part of the model.
func (e *engine) Run(id models.BatchID, start, _, _ int, _ *uint32, out worker.OutputFunc) (worker.Ran, error) {
	a, err := e.device.lend(e)
	if err != nil {
		return worker.Ran{}, err
	}
	defer e.device.giveBack(e, a)
	s := e.await(a, id, start)
	if s == nil {
		return worker.Ran{}, worker.ErrKilled
	}
	ran := worker.Ran{Reached: s.reached, Took: s.took, DeviceTime: s.took}
	if s.err != nil || ran.Reached < e.model.Operators {
		return ran, s.err
	}
	e.mu.Lock()
	sizes := e.mu.batches[id]
	delete(e.mu.batches, id)
	e.mu.Unlock()
	for i, size := range sizes {
		shape := []int64{size, Columns}
		// The outputs are zeros, because nothing ever writes to the arena.
		if _, err := out(i, 0, models.Float32, shape, size*Columns*int64(models.Float32.Bytes())); err != nil {
			return ran, fmt.Errorf("outputs of query %d: %w", i, err)
		}
	}
	return ran, nil
}

// await returns the span of a batch once it has ended, or nil if the worker is to
// end.
func (e *engine) await(a *alarm, id models.BatchID, start int) *span {
	for e.ctx.Err() == nil {
		switch s, left := e.device.look(e, a, id, start); {
		case left <= 0:
			return s
		case left <= pollTime:
			runtime.Gosched()
		default:
			a.wait()
		}
	}
	return nil
}

// Describe and Export have nothing to move: a batch consists only of its queries'
// sizes, which Import gets with the queries.
func (e *engine) Describe(models.BatchID) ([]models.Tensor, uint64, error) { return nil, 0, nil }
func (e *engine) Export(models.BatchID, []models.Tensor) error             { return nil }

func (e *engine) Import(id models.BatchID, _ int, queries []wire.QueryTensors, _ uint64, _ []models.Tensor) (bool, error) {
	return true, e.Start(id, queries)
}

func (e *engine) Release(id models.BatchID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.mu.batches, id)
}

// IntermediateBytes returns 0, because an emulated device holds no memory.
func (e *engine) IntermediateBytes() int64 { return 0 }
func (e *engine) Trim()                    {}

func (e *engine) Close() error { return nil }

// pollTime is how long before the end of its span an engine starts to poll the
// clock. Waking up takes about that long.
const pollTime = 100 * time.Microsecond

// forever is the time that an engine without a span sleeps, unless it is woken.
const forever = time.Hour

// alarm wakes one goroutine at a time that others may change. Go's own timers can be
// a millisecond late on an idle process; a timerfd is late only by the time to wake
// the thread in Go's poller.
type alarm struct {
	fd int

	// file is the same descriptor, registered with the poller.
	file *os.File
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &alarm{fd, os.NewFile(uintptr(fd), "alarm")}, nil
}

// set makes the alarm ring after d, and cancels the time set before. It must not be
// called after close.
func (a *alarm) set(d time.Duration) {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))}
	_ = unix.TimerfdSettime(a.fd, 0, &at, nil) // fails only for a bad descriptor or time
}

// wait returns when the alarm rings.
func (a *alarm) wait() {
	var rings [8]byte
	_, _ = a.file.Read(rings[:])
}

func (a *alarm) close() { _ = a.file.Close() }
