package worker

import (
	"errors"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// ErrKilled is returned by an engine whose worker was killed while a span ran. The
// loop then ends without an answer, as a killed process would.
var ErrKilled = errors.New("worker: killed")

// Engine runs the operators of one model. With more than one wire.LoadSpec.Units, the
// worker's loop calls it from several goroutines, but not twice at a time for one batch.
type Engine interface {
	// Info describes the model.
	Info() wire.Info

	// Start begins a batch with the inputs of its queries. Their data remain valid
	// until the batch is finished or released, the list and the shapes only during
	// the call. The data must not be written, see Memory.Inputs.
	Start(id models.BatchID, queries []wire.QueryTensors) error

	// Run runs operators [start, end) of a batch on a share of the units, 0 for all of
	// them. Before each operator it reads stop atomically,
	// and returns early if that is not 0. When a batch reaches the end of the model,
	// Run writes its outputs to the memory that out returns, and forgets the batch.
	Run(id models.BatchID, start, end, share int, stop *uint32, out OutputFunc) (Ran, error)

	// Describe returns the type, shape and size of each value that a paused batch
	// needs in another engine of the model, and a number that identifies the list.
	// Export writes the values to memory of those sizes, and forgets the batch.
	Describe(id models.BatchID) (values []models.Tensor, cut uint64, err error)
	Export(id models.BatchID, to []models.Tensor) error

	// Import begins a batch at an operator, with the values that another engine has
	// exported. It reports whether it copied them. If it did not, their data must
	// remain valid until the batch is finished or released.
	Import(id models.BatchID, at int, queries []wire.QueryTensors, cut uint64, values []models.Tensor) (copied bool, err error)

	// Release forgets a batch, even one for which Start, Run, Export or Import
	// failed. It does nothing for an unknown batch.
	Release(id models.BatchID)

	// IntermediateBytes returns the memory held for current and later batches. Trim
	// returns to the system what no current batch needs.
	IntermediateBytes() int64
	Trim()

	Close() error
}

// Ran is the result of Engine.Run.
type Ran struct {
	// Reached is the operator that would run next.
	Reached int

	// Took is the time on the host. With 0, the loop measures the call itself.
	Took time.Duration

	// DeviceTime is the time by the clock of the device, 0 if it has none.
	DeviceTime time.Duration
}

// LoadFunc loads the model of a worker. Memory is where the inputs and outputs of
// queries will lie.
type LoadFunc func(spec wire.LoadSpec, memory Memory, progress ProgressFunc) (Engine, error)

// Memory is the memory that a worker shares with the daemon.
type Memory struct {
	// Inputs must not be written. Without a GPU it is mapped read-only, and a write
	// crashes the process.
	Inputs  []byte
	Outputs []byte

	// Moves holds the values of batches that move between workers, nil if none do.
	Moves []byte
}

// ProgressFunc reports how far loading has progressed; total is 0 if it is not known. It
// may be called from any goroutine and at any rate.
type ProgressFunc func(phase string, done, total int64)

// OutputFunc returns memory for one output of one query. Both are numbered from zero,
// the query within its batch. The outputs of a query must be requested in order. The
// error is wire.ErrArenaFull if the daemon has not yet released enough earlier outputs,
// and wire.ErrTooLarge if the outputs of the query would not fit even then.
type OutputFunc func(query, output int, t models.DataType, shape []int64, bytes int64) ([]byte, error)
