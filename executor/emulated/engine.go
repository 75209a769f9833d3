package emulated

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// What the models of an emulated device look like from outside. It is nothing
// like what the real ones take: a query has what the daemon must see of it, its
// batch size and its sequence length.
const (
	InputName  = "input"
	OutputName = "output"

	// Columns is how many numbers there are for each query of a batch, in the
	// output and in the input of a model without sequences.
	Columns = 4
)

// engine runs the spans of one service by sleeping.
type engine struct {
	device   *Device
	ctx      context.Context // ends with the worker
	model    device.ModelInfo
	position int // the model's, on the device
	info     wire.Info
	batches  map[models.BatchID][]int64 // the batch sizes of the queries

	// The device's lock covers what follows, so that no ring is lost: who sets the
	// alarm knows all that has changed.
	alarm *alarm  // nil once the worker is gone
	spans []*span // sent and not ended, in order
}

// ringLocked has the engine look at its spans, of which one was sent or stopped.
func (e *engine) ringLocked() {
	if e.alarm != nil {
		e.alarm.set(0)
	}
}

// describe describes the model as a worker would that has loaded it, with the
// times that the device says its operators take alone.
func describe(m *device.ModelInfo, position int, hash string, latency func(models.Group) time.Duration) wire.Info {
	batch := models.Dim{Value: -1, Name: "batch"}
	columns := models.Dim{Value: Columns}
	input := models.Tensor(models.Float32, batch, columns)
	if m.SeqLens[len(m.SeqLens)-1] > 0 {
		input = models.Tensor(models.Int64, batch, models.Dim{Value: -1, Name: "sequence"})
	}
	i := wire.Info{
		Inputs:    []models.TensorSpec{{Name: InputName, Type: input}},
		Outputs:   []models.TensorSpec{{Name: OutputName, Type: models.Tensor(models.Float32, batch, columns)}},
		Operators: make([]models.Operator, m.Operators),
		Hash:      hash,

		Convolutions: true, // what a model has is not known: its device says what sizes cost
	}
	for o := range i.Operators {
		i.Operators[o] = models.Operator{Name: fmt.Sprintf("%s/%d", m.Name, o), Type: "emulated", Nodes: 1}
	}
	for _, size := range m.Sizes {
		for _, seqLen := range m.SeqLens {
			i.Solo = append(i.Solo, wire.Solo{Size: size, SeqLen: seqLen, Nanos: device.OperatorTimes(latency, position, m.Operators, size, seqLen)})
		}
	}
	return i
}

func (e *engine) Info() wire.Info { return e.info }

func (e *engine) Start(id models.BatchID, queries []worker.Query) error {
	var sizes []int64
	for _, q := range queries {
		if len(q.Inputs) != 1 || len(q.Inputs[0].Shape) == 0 {
			return fmt.Errorf("%w: query %d has not one input with a batch dimension", wire.ErrInput, q.ID)
		}
		sizes = append(sizes, q.Inputs[0].Shape[0])
	}
	e.batches[id] = sizes
	return nil
}

// Run sleeps until the span has ended on the device, whose clock is the only one:
// how long it took to be woken is no property of what is modelled.
func (e *engine) Run(id models.BatchID, start, _, _ int, _ *uint32, out worker.OutputFunc) (worker.Ran, error) {
	s := e.await(id, start)
	if s == nil {
		return worker.Ran{}, worker.ErrKilled
	}
	ran := worker.Ran{Reached: s.reached, Took: s.took, DeviceTime: s.took}
	if s.err != nil || ran.Reached < e.model.Operators {
		return ran, s.err
	}
	sizes := e.batches[id]
	delete(e.batches, id)
	for i, size := range sizes {
		shape := []int64{size, Columns}
		// Nobody ever writes to the arena, so that every output is zeros.
		if _, err := out(i, 0, models.Float32, shape, size*Columns*int64(models.Float32.Bytes())); err != nil {
			return ran, fmt.Errorf("outputs of query %d: %w", i, err)
		}
	}
	return ran, nil
}

// await returns the span of a batch when it has ended, or nil when the worker is
// to end.
func (e *engine) await(id models.BatchID, start int) *span {
	for e.ctx.Err() == nil {
		switch s, left := e.device.look(e, id, start); {
		case left <= 0:
			return s
		case left <= pollTime:
			runtime.Gosched()
		default:
			e.alarm.wait()
		}
	}
	return nil
}

// A batch takes nothing along: all that there is of it are the sizes of its queries.
func (e *engine) Describe(models.BatchID) ([]wire.Tensor, uint64, error) { return nil, 0, nil }
func (e *engine) Export(models.BatchID, [][]byte) error                  { return nil }

func (e *engine) Import(id models.BatchID, _ int, queries []worker.Query, _ uint64, _ []worker.Tensor) (bool, error) {
	return true, e.Start(id, queries)
}

func (e *engine) Release(id models.BatchID) { delete(e.batches, id) }

// An emulated device holds no memory.
func (e *engine) IntermediateBytes() int64 { return 0 }
func (e *engine) Trim()                    {}

func (e *engine) Close() error { return nil }

// pollTime is for how long an engine looks at the clock before its span ends,
// since waking up takes about as long.
const pollTime = 100 * time.Microsecond

// forever is a sleep that only others end.
const forever = time.Hour

// alarm wakes one goroutine at a time that others may change. Go's own timers are
// late by up to a millisecond where nothing else goes on; this is late by what it
// takes to wake the thread that waits in Go's poller.
type alarm struct {
	fd   int
	file *os.File // the same, for the poller
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &alarm{fd, os.NewFile(uintptr(fd), "alarm")}, nil
}

// set makes the alarm ring after d, and not when it was to ring before. It may
// not be called after close.
func (a *alarm) set(d time.Duration) {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))}
	_ = unix.TimerfdSettime(a.fd, 0, &at, nil) // fails for a bad descriptor or time only
}

// wait returns when the alarm rings.
func (a *alarm) wait() {
	var rings [8]byte
	_, _ = a.file.Read(rings[:])
}

func (a *alarm) close() { _ = a.file.Close() }
