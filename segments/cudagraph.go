package segments

import (
	"fmt"

	"github.com/overlapd/overlapd/segments/wire"
)

// On a GPU a segment may run as a CUDA graph: ONNX Runtime records what one of its runs
// launches, and launches that as a whole from then on. The kernels have the addresses that
// they had: so each frame has graphs of its own, of segments all of whose ends lie in the
// frame, and the scratch memory that they took of the arena then must be free now.

const (
	// captureRuns is how many batches a frame has had before its segments are captured:
	// until then libraries choose kernels, and the arena grows, which a capture forbids.
	captureRuns = 2

	// mostCaptures is how many frames of a model have graphs. ONNX Runtime keeps the graphs
	// of a frame that is closed until the model is.
	mostCaptures = 32
)

// captures says which segments of a frame may be CUDA graphs.
type captures struct {
	fixed  []bool // by piece, none where there are no graphs
	strays bool   // values of its batches lie in the GPU's arena between segments
	ran    int    // how many batches it has had
	number int    // of its graphs, 0 if it has none yet
}

// capturesOf looks at a frame whose values are bound.
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

// forget has a segment not be a graph, since one of its inputs lies elsewhere.
func (c *captures) forget(piece int) {
	if c.fixed != nil {
		c.fixed[piece] = false
	}
}

// mayCapture reports whether segments of b may run as graphs now. A graph may write to
// any memory of the arena that was free when it was captured, so no batch may have a value
// there.
func (r *deviceRun) mayCapture(b *batch) (bool, error) {
	f := b.frame
	if !r.Device.graphs || !r.serving || f.layout == nil || f.ran < captureRuns {
		return false, nil
	}
	for _, other := range r.m.batches {
		if other.frame.strays {
			return false, nil
		}
	}
	if f.number == 0 {
		if r.m.pool.graphs == mostCaptures {
			return false, nil
		}
		r.m.pool.graphs++
		f.number = r.m.pool.graphs
		return true, f.program.NumberGraphs(f.number)
	}
	return true, nil
}

// captureFault adds to an error of a segment that ran as a graph what may help. The stream
// may still be recording, so the worker ends.
func captureFault(graph bool, err error) error {
	if !graph {
		return err
	}
	return fmt.Errorf("%w: a segment as a CUDA graph: %w; if it happens again, set graphs = false in [cuda]", wire.ErrDeviceLost, err)
}
