package segments

import (
	"fmt"

	"github.com/overlapd/overlapd/models"
)

// ExpectDeviceMemory returns what a model is expected to need of a GPU's memory
// before anything of it is loaded: its weights once, and the libraries of as
// many segments as LoadSpec.CutTarget asks for. Intermediates are not known yet
// and left out, and so is that a weight used by several segments counts for
// each; the worker reckons again with what it finds.
func ExpectDeviceMemory(f *models.File, cutTarget int) DeviceMemory {
	m := DeviceMemory{Context: contextBytes, Sessions: len(f.Graph.Nodes)}
	if cutTarget == 0 {
		cutTarget = DefaultCUDATarget
	}
	if cutTarget > 0 {
		m.Sessions = min(m.Sessions, cutTarget)
	}
	m.Handles = int64(m.Sessions) * sessionHandleBytes
	for i := range f.Graph.Initializers {
		m.Weights += f.Graph.Initializers[i].Bytes
	}
	return m
}

// Sums returns what Sum is made of, in words.
func (m DeviceMemory) Sums() string {
	text := "weights " + mega(m.Weights)
	if m.Intermediates > 0 {
		text += " + intermediates " + mega(m.Intermediates)
	}
	return fmt.Sprintf("%s + libraries of %d segments %s + context %s", text, m.Sessions, mega(m.Handles), mega(m.Context))
}
