package wire

import (
	"fmt"
	"iter"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// Estimates of the GPU memory that the driver and the libraries take, used until it
// has been measured.
const (
	// sessionHandleBytes is for the handles and workspaces of cuBLAS and cuDNN in a
	// session: 142 to 146 MiB on an H100 for ten models of 2 to 354 sessions, and 113 and
	// 130 MiB for two (docs/benchmarks/gpu.md).
	sessionHandleBytes = 146 << 20

	// contextBytes is for the context of a process, with the libraries' kernels.
	contextBytes = 512 << 20
)

// DeviceMemory compares the GPU memory that a model needs with what is available.
// All fields are in bytes, except Sessions.
type DeviceMemory struct {
	Weights int64 `json:"weights"`

	// Intermediates is for the largest batch that was tried.
	Intermediates int64 `json:"intermediates"`
	Sessions      int   `json:"sessions"`

	// Handles is for the libraries in all sessions together.
	Handles int64 `json:"handles"`
	Context int64 `json:"context"`

	// Given limits the worker, 0 for no limit.
	Given int64 `json:"given"`

	// Free is what the GPU had once the context existed. Taken is how much less it
	// has now, because of any process.
	Free  int64 `json:"free"`
	Taken int64 `json:"taken"`
}

// NeedDeviceMemory returns the needs of a model without its intermediates.
func NeedDeviceMemory(weights int64, sessions int) DeviceMemory {
	return DeviceMemory{Weights: weights, Sessions: sessions, Handles: int64(sessions) * sessionHandleBytes, Context: contextBytes}
}

// Sum returns the total that the worker needs.
func (m DeviceMemory) Sum() int64 { return m.Weights + m.Intermediates + m.Handles + m.Context }

// Sums lists the terms of Sum.
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
		given = fmt.Sprintf("the limit of the service is %s, ", models.MiB(m.Given))
	}
	return fmt.Sprintf("%s = %s; %sthe GPU has %s free in addition to the context", m.Sums(), models.MiB(m.Sum()), given, models.MiB(m.Free))
}

// Check returns ErrDeviceFull, with all figures, if the model does not fit. Free was
// measured with the context in place, so the context does not count against it.
func (m DeviceMemory) Check() error {
	if m.Given > 0 && m.Sum() > m.Given || m.Sum()-m.Context > m.Free {
		return fmt.Errorf("%w: %s; lower max_batch or the number of segments, give the service more memory, or move a service to another GPU",
			ErrDeviceFull, m)
	}
	return nil
}

// Room returns how much memory remains for intermediates, at least 0.
func (m DeviceMemory) Room() int64 {
	left := m.Free - (m.Sum() - m.Context - m.Intermediates)
	if m.Given > 0 {
		left = min(left, m.Given-(m.Sum()-m.Intermediates))
	}
	return max(left, 0)
}

// SegmentsMemory returns the needs of segments without their intermediates. The
// sequence yields for each segment the bytes of its weights and whether it has
// convolutions. A segment with convolutions has one session for each of the given
// number of sets, and each of these sessions holds the weights.
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

// ExpectDeviceMemory estimates the GPU memory that a model needs before any of it is
// loaded. It assumes as many segments as LoadSpec.CutTarget asks for. For
// convolutions it assumes a set of sessions for each size of the ladder up to the
// largest batch. It leaves out intermediates, which are not known yet. The worker
// repeats the calculation with the optimized model and its actual cut points.
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

// evenSegments yields the weights of n segments with equally many nodes, and whether
// they have convolutions.
func evenSegments(f *models.File, segments int) iter.Seq2[int64, bool] {
	values, nodes := f.Graph.Index(), f.Graph.Nodes
	bytes := make([]int64, len(values.Names)) // 0 for values that are not initializers
	for i := range f.Graph.Initializers {
		if id, ok := values.ID(f.Graph.Initializers[i].Name); ok {
			bytes[id] = f.Graph.Initializers[i].Bytes
		}
	}
	return func(yield func(int64, bool) bool) {
		for s := range segments {
			var weights int64
			convolutions := false
			counted := map[int32]bool{-1: true} // -1 is an omitted optional input
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
