package segments

import (
	"fmt"

	"github.com/overlapd/overlapd/segments/wire"
)

// On a GPU a segment may run as a CUDA graph: ONNX Runtime records the launches of one run,
// and from then on launches them as a whole. The kernels in a graph keep the addresses of
// the recording. Each frame therefore has its own graphs, only for segments whose inputs
// and outputs all lie in the frame. The scratch memory that a recording took from the arena
// must be free whenever its graph runs.

const (
	// captureRuns is how many batches a frame runs before its segments are captured. During
	// the first runs libraries choose kernels and the arena grows, neither of which may
	// happen in a capture.
	captureRuns = 2

	// mostCaptures is how many frames of a model may have graphs. ONNX Runtime keeps the
	// graphs of a closed frame until the model is closed.
	mostCaptures = 32
)

// captures records which segments of a frame may run as CUDA graphs.
type captures struct {
	// fixed says for each piece whether it may be a graph. It is empty if graphs are not
	// possible.
	fixed []bool

	// strays is set if the frame's batches have values in the GPU's arena between segments.
	strays bool

	// ran is how many batches the frame has run.
	ran int

	// number is the ID of the frame's graphs, 0 if it has none yet.
	number int
}

// capturesOf returns the captures of a frame whose values are bound.
func capturesOf(m *loaded, f *frame) (c captures) {
	if !m.far {
		return c
	}
	c.fixed = make([]bool, len(m.cut.pieces))
	for p := range c.fixed {
		pc := &m.cut.pieces[p]
		c.fixed[p] = pc.fixed && !m.waits[p]
		for _, ids := range [2][]int32{pc.inputs, pc.outputs} {
			for _, id := range ids {
				c.fixed[p] = c.fixed[p] && f.values[id] != nil
			}
		}
	}
	for _, at := range f.loose {
		c.strays = c.strays || !m.hostHome[m.cut.pieces[at.piece].outputs[at.pos]]
	}
	return c
}

// forget excludes a segment from graphs because one of its inputs does not lie in the
// frame.
func (c *captures) forget(piece int) {
	if c.fixed != nil {
		c.fixed[piece] = false
	}
}

// mayCapture reports whether segments of b may run as graphs now, and assigns the frame its
// graph ID the first time. A graph may write to any arena memory that was free when it was
// captured, so no batch may have a value in the arena.
func (r *deviceRun) mayCapture(b *batch) (bool, error) {
	f := b.frame
	if !r.device.Captures() || f.layout == nil || f.captures.ran < captureRuns {
		return false, nil
	}
	for _, other := range r.m.pool.batches {
		if other.frame.captures.strays {
			return false, nil
		}
	}
	if f.captures.number == 0 {
		if r.m.pool.graphs == mostCaptures {
			return false, nil
		}
		r.m.pool.graphs++
		f.captures.number = r.m.pool.graphs
		return true, f.program.NumberGraphs(f.captures.number)
	}
	return true, nil
}

// captureFault adds advice to the error of a segment that ran as a graph. The error ends
// the worker, because the stream may still be recording.
func captureFault(graph bool, err error) error {
	if !graph {
		return err
	}
	return fmt.Errorf("%w: a segment failed as a CUDA graph: %w; if it happens again, set graphs = false in [cuda]", wire.ErrDeviceLost, err)
}
