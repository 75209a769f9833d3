package segments

import (
	"fmt"
	"os"
)

// Pin keeps memory of queries and outputs in place, so that the device copies
// it without a detour. It lasts until the model is closed. A refusal only costs
// time: it is for the caller to tell somebody.
func (e *CutModel) Pin(memory []byte, readOnly bool) error {
	if !e.device.far() || len(memory) == 0 {
		return nil
	}
	if int64(len(memory)) > maxPinnedBytes {
		return fmt.Errorf("%d bytes of shared memory are not pinned, the limit is %d: copies to the GPU are slower", len(memory), int64(maxPinnedBytes))
	}
	if err := e.device.pin(memory, readOnly); err != nil {
		return fmt.Errorf("shared memory cannot be pinned, copies to the GPU are slower: %w", err)
	}
	e.pins = append(e.pins, memory)
	return nil
}

// maxPinnedBytes is the largest range that is pinned, since all of its pages
// are taken from the system for good.
const maxPinnedBytes = 1 << 30

func (e *CutModel) unpin() {
	for _, memory := range e.pins {
		if err := e.device.unpin(memory); err != nil {
			fmt.Fprintln(os.Stderr, "shared memory stays pinned:", err)
		}
	}
	e.pins = nil
}
