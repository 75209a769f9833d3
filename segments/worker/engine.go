package worker

import (
	"errors"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// ErrKilled is returned by an engine whose worker was killed while a span ran: as a
// process would, the worker ends and says nothing of the span.
var ErrKilled = errors.New("worker: killed")

// Engine runs the operators of one model. The worker's loop calls it from one
// goroutine.
type Engine interface {
	// Info describes the model.
	Info() wire.Info

	// Start begins a batch: it gathers the inputs of the queries, which stay
	// where they are until the batch is finished or released.
	Start(id models.BatchID, queries []Query) error

	// Run runs operators [start, end) of a batch on so many threads if it can, 0 for
	// all that it has. It looks at stop atomically
	// before each operator and returns early if it is not 0. A batch that gets to
	// the end of the model is finished: its outputs are written to the memory that
	// out returns, and it is forgotten.
	Run(id models.BatchID, start, end, threads int, stop *uint32, out OutputFunc) (Ran, error)

	// Describe returns type, shape and size of what a paused batch must take along to
	// another engine of the model, and a number by which that one knows the list. Export
	// writes it to memory of those sizes, and forgets the batch.
	Describe(id models.BatchID) (values []wire.Tensor, cut uint64, err error)
	Export(id models.BatchID, to [][]byte) error

	// Import begins a batch at an operator, with what another engine has exported. It
	// reports whether it has copied that: the memory must stay as it is otherwise, until
	// the batch is finished or released.
	Import(id models.BatchID, at int, queries []Query, cut uint64, values []Tensor) (copied bool, err error)

	// Release forgets a batch, also one that Start, Run, Export or Import failed on. Releasing
	// one that is not there does nothing.
	Release(id models.BatchID)

	// IntermediateBytes returns the memory that is held for batches, and for later
	// ones. Trim gives back to the system what no batch needs.
	IntermediateBytes() int64
	Trim()

	Close() error
}

// Ran is what Run returns.
type Ran struct {
	Reached    int           // the operator that would run next
	Took       time.Duration // on the host, 0 for what passed between call and return
	DeviceTime time.Duration // by the clock of the device, 0 if it has none
}

// LoadFunc loads the model of a worker. Memory is what the inputs and outputs of
// queries will lie in.
type LoadFunc func(spec wire.LoadSpec, memory Memory, progress ProgressFunc) (Engine, error)

// Memory is what a worker shares with the daemon.
type Memory struct {
	Inputs  []byte // not to be written: without a GPU that kills the process
	Outputs []byte
	Moves   []byte // what batches take along to other workers, nil where none do
}

// ProgressFunc reports how far loading has come; total is 0 if it is not known.
// It may be called from any goroutine and as often as one likes.
type ProgressFunc func(phase string, done, total int64)

// Query has the inputs of one query, in the order of the model's inputs.
type Query struct {
	ID     models.QueryID
	Inputs []Tensor
}

// Tensor is a tensor in shared memory. One of strings is in the protocol's
// serialized form: before the bytes of each element their number, in four bytes,
// little-endian.
type Tensor struct {
	Type  models.DataType
	Shape []int64
	Data  []byte // read-only memory, where it is an input: a write kills the process
}

// OutputFunc returns memory for one output of one query, both numbered from
// zero, the query within its batch. The outputs of a query are asked for in
// order. The error is wire.ErrArenaFull if the daemon has not yet answered enough
// earlier queries, and wire.ErrTooLarge if the outputs of the query would not fit even
// then.
type OutputFunc func(query, output int, t models.DataType, shape []int64, bytes int64) ([]byte, error)
