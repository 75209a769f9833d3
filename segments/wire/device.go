package wire

import (
	"fmt"
	"iter"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// What the driver and the libraries take of a GPU's memory, until it has been
// measured.
const (
	// sessionHandleBytes is what a session needs for the handles and workspaces
	// of cuBLAS and cuDNN. cuBLAS alone takes 32 MiB where it runs at its best on
	// GPUs of compute capability 9.0 (NVIDIA's documentation of
	// CUBLAS_WORKSPACE_CONFIG).
	sessionHandleBytes = 40 << 20

	// contextBytes is what the context of a process needs, with the kernels of
	// the libraries.
	contextBytes = 512 << 20
)

// DeviceMemory is the memory of a GPU that a model needs and that there is, in bytes.
// Sessions is a number.
type DeviceMemory struct {
	// Intermediates are those of the largest batch that was tried, Handles those of
	// the libraries for all sessions.
	Weights       int64 `json:"weights"`
	Intermediates int64 `json:"intermediates"`
	Sessions      int   `json:"sessions"`
	Handles       int64 `json:"handles"`
	Context       int64 `json:"context"`

	// Given limits the worker, 0 for no limit. Free is what the GPU had once the
	// context was there, Taken how much less it has now, by any process.
	Given int64 `json:"given"`
	Free  int64 `json:"free"`
	Taken int64 `json:"taken"`
}

// NeedDeviceMemory returns what a model needs without its intermediates.
func NeedDeviceMemory(weights int64, sessions int) DeviceMemory {
	return DeviceMemory{Weights: weights, Sessions: sessions, Handles: int64(sessions) * sessionHandleBytes, Context: contextBytes}
}

// Sum returns all that the worker needs.
func (m DeviceMemory) Sum() int64 { return m.Weights + m.Intermediates + m.Handles + m.Context }

// Sums lists the parts of Sum.
func (m DeviceMemory) Sums() string {
	text := "weights " + models.MiB(m.Weights)
	if m.Intermediates > 0 {
		text += " + intermediates " + models.MiB(m.Intermediates)
	}
	return fmt.Sprintf("%s + libraries of %d sessions %s + context %s", text, m.Sessions, models.MiB(m.Handles), models.MiB(m.Context))
}

func (m DeviceMemory) String() string {
	given := ""
	if m.Given > 0 {
		given = fmt.Sprintf("the service is given %s, ", models.MiB(m.Given))
	}
	return fmt.Sprintf("%s = %s; %sthe GPU has %s free besides the context", m.Sums(), models.MiB(m.Sum()), given, models.MiB(m.Free))
}

// Check returns ErrDeviceFull with the sums if the model does not fit.
func (m DeviceMemory) Check() error {
	if m.Given > 0 && m.Sum() > m.Given || m.Sum()-m.Context > m.Free {
		return fmt.Errorf("%w: %s; lower max_batch or the number of segments, give the service more memory, or move a service to another GPU",
			ErrDeviceFull, m)
	}
	return nil
}

// Room returns the memory that is left for intermediates.
func (m DeviceMemory) Room() int64 {
	left := m.Free - (m.Sum() - m.Context - m.Intermediates)
	if m.Given > 0 {
		left = min(left, m.Given-(m.Sum()-m.Intermediates))
	}
	return max(left, 0)
}

// SegmentsMemory returns what segments need without their intermediates, of each of which
// is given how many bytes its weights have and whether it has convolutions, for which it
// has so many sets of sessions, each with the weights.
func SegmentsMemory(segments iter.Seq2[int64, bool], sets int) DeviceMemory {
	var weights int64
	sessions := 0
	for bytes, convolutions := range segments {
		n := 1
		if convolutions {
			n = max(sets, 1)
		}
		weights, sessions = weights+int64(n)*bytes, sessions+n
	}
	return NeedDeviceMemory(weights, sessions)
}

// ExpectDeviceMemory returns what a model is expected to need of a GPU's memory
// before anything of it is loaded, with as many segments as LoadSpec.CutTarget asks
// for, and a set of sessions for convolutions for each size of the ladder up to the
// largest batch. Intermediates are not known yet and left out; the worker reckons again
// with what the optimizer has left of the model, and its own borders.
func ExpectDeviceMemory(f *models.File, cutTarget, maxBatch int) DeviceMemory {
	segments := len(f.Graph.Nodes)
	if cutTarget == 0 {
		cutTarget = DefaultCUDATarget
	}
	if cutTarget > 0 {
		segments = min(segments, cutTarget)
	}
	return SegmentsMemory(evenSegments(f, segments), 1+models.Rung(maxBatch))
}

// evenSegments yields the weights of so many segments of like size, and whether they have
// convolutions.
func evenSegments(f *models.File, segments int) iter.Seq2[int64, bool] {
	values, nodes := f.Graph.Index(), f.Graph.Nodes
	bytes := make([]int64, len(values.Names)) // of initializers
	for i := range f.Graph.Initializers {
		if id, ok := values.ID(f.Graph.Initializers[i].Name); ok {
			bytes[id] = f.Graph.Initializers[i].Bytes
		}
	}
	return func(yield func(int64, bool) bool) {
		for s := range segments {
			var weights int64
			convolutions := false
			counted := map[int32]bool{-1: true} // an input that is left out
			for n := s * len(nodes) / segments; n < (s+1)*len(nodes)/segments; n++ {
				convolutions = convolutions || nodes[n].Convolves()
				for _, id := range slices.Concat(values.NodeIn[n], values.NodeCaptures[n]) {
					if !counted[id] {
						counted[id] = true
						weights += bytes[id]
					}
				}
			}
			if !yield(weights, convolutions) {
				return
			}
		}
	}
}
