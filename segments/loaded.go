package segments

import (
	"errors"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// loaded is a model that is optimized and cut, with a session for each piece. It does not
// change after loading, except for the live bytes of its operators and its shares.
type loaded struct {
	env    *ort.Env
	device device

	// far is set if the device has memory of its own.
	far bool

	model models.Model

	// convolves is set if the model has convolutions.
	convolves bool

	cut      *cutting
	sessions []*ort.Session

	// more holds the sessions for the batch sizes of the ladder from the second on. Only
	// pieces with convolutions have separate sessions; the others share the first.
	more [][]*ort.Session

	// shares holds sessions that run on a part of the units.
	shares shares

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
	cacheHit bool
	loadTook time.Duration
}

// use is a place where a value enters or leaves a session: a piece, and the position among
// its inputs or outputs.
type use struct{ piece, pos int }

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

// closeSessions closes each session once, although a session may be part of several sets,
// and then the weights.
func (m *loaded) closeSessions() error {
	var errs []error
	own := slices.Clone(m.sessions)
	for _, set := range m.more {
		for p, s := range set {
			if s != m.sessions[p] {
				own = append(own, s)
			}
		}
	}
	errs = append(errs, closeAll(own), m.shares.close())
	m.sessions, m.more = nil, nil
	errs = append(errs, m.weights.close())
	return errors.Join(errs...)
}
