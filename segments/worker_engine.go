package segments

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// TensorView is a tensor in shared memory as a worker sees it. A string tensor
// is in the protocol's serialized form: four bytes of length, little-endian,
// before the bytes of each element.
type TensorView struct {
	Type  models.DataType
	Shape []int64
	Data  []byte // read-only memory: a write kills the process
}

// QueryInputs are the inputs of one query, in the order of the model's inputs.
type QueryInputs struct {
	ID     models.QueryID
	Inputs []TensorView
}

// OutputFunc returns memory for one output of one query, both numbered from
// zero, the query within its batch. The outputs of a query are asked for in
// order. The error is ErrArenaFull if the daemon has not yet answered enough
// earlier queries.
type OutputFunc func(query, output int, t models.DataType, shape []int64, bytes int64) ([]byte, error)

// ProgressFunc tells how far loading has come; total is 0 if it is not known.
// It may be called from any goroutine and as often as one likes.
type ProgressFunc func(phase string, done, total int64)

// LoadFunc loads the model of a worker.
type LoadFunc func(spec LoadSpec, progress ProgressFunc) (Engine, error)

// deviceTimer is an Engine that runs on a device with a clock of its own.
type deviceTimer interface {
	// DeviceTime returns how long the device took for the last span.
	DeviceTime() time.Duration
}

// pinner is an Engine that copies from and to shared memory faster if that
// stays in place.
type pinner interface {
	Pin(memory []byte, readOnly bool) error
}

// Engine runs the operators of one model. The worker's main loop calls it from
// one thread.
type Engine interface {
	Info() Info

	// Start begins a batch: it gathers the inputs of the queries, which stay
	// where they are until the batch is finished or released.
	Start(id models.BatchID, queries []QueryInputs) error

	// Run runs operators [start, end) of a batch and returns the operator that
	// would run next. It looks at stop atomically before each operator and
	// returns early if it is not 0.
	Run(id models.BatchID, start, end int, stop *uint32) (reached int, err error)

	// Finish writes the outputs of every query and forgets the batch.
	Finish(id models.BatchID, out OutputFunc) error

	// Release forgets a batch, also one that Start, Run or Finish failed on.
	// Releasing one that is not there does nothing.
	Release(id models.BatchID)

	// IntermediateBytes returns what the paused batches hold.
	IntermediateBytes() int64

	Close() error
}
