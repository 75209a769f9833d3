package segments

import (
	"errors"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/segments/wire"
)

// takeFrame returns a frame for layout l, an idle one if there is one.
func (e *CutModel) takeFrame(l *layout) (*frame, error) {
	for i, f := range e.idle {
		if f.layout == l && l != nil {
			e.idle = slices.Delete(e.idle, i, i+1)
			return f, nil
		}
	}
	if l != nil && !e.makeRoom(l.bytes) {
		return nil, fmt.Errorf("%w: %d bytes wanted, %d of %d in use by %d batches",
			wire.ErrMemory, l.bytes, e.IntermediateBytes(), e.budget, len(e.batches))
	}
	f, err := e.newFrame(l)
	if errors.Is(err, wire.ErrDeviceMemory) && len(e.idle) > 0 {
		// Others take memory of a GPU as well: what is kept for later may help.
		for len(e.idle) > 0 {
			e.closeIdle(0)
		}
		f, err = e.newFrame(l)
	}
	if err == nil {
		e.used += f.bytes()
	}
	return f, err
}

// makeRoom closes idle frames until so many bytes more are within the budget,
// and reports whether they are.
func (e *CutModel) makeRoom(bytes int64) bool {
	for e.IntermediateBytes()+bytes > e.budget && len(e.idle) > 0 {
		e.closeIdle(0)
	}
	return e.IntermediateBytes()+bytes <= e.budget
}

// giveFrame keeps a frame for the next batch of its layout, unless that layout
// is not remembered any more.
func (e *CutModel) giveFrame(f *frame, key layoutKey) {
	f.reset()
	e.idle = append(e.idle, f)
	if entry := e.layouts[key]; f.layout == nil || entry == nil || entry.layout != f.layout {
		e.closeIdle(len(e.idle) - 1)
		return
	}
	if len(e.idle) > maxIdleFrames {
		e.closeIdle(0)
	}
}

func (e *CutModel) closeIdle(i int) {
	e.used -= e.idle[i].bytes()
	e.idle[i].close(e.device)
	e.idle = slices.Delete(e.idle, i, i+1)
}
