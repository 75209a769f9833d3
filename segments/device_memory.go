package segments

import (
	"fmt"
	"strings"

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

// DeviceMemory is what a model needs of a GPU's memory, and what there is. All
// are bytes.
type DeviceMemory struct {
	Weights       int64 `json:"weights"`
	Intermediates int64 `json:"intermediates"` // of the batch that needs the most of those that were tried
	Sessions      int   `json:"sessions"`      // a number
	Handles       int64 `json:"handles"`       // of the libraries, for all sessions
	Context       int64 `json:"context"`
	Given         int64 `json:"given"` // what the worker may take in all, 0 for no limit
	Free          int64 `json:"free"`  // what the GPU had when the context was there
	Taken         int64 `json:"taken"` // how much less it has now; other processes count as well
}

// Sum returns what the worker needs in all.
func (m DeviceMemory) Sum() int64 { return m.Weights + m.Intermediates + m.Handles + m.Context }

func (m DeviceMemory) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "weights %s + intermediates %s + libraries of %d segments %s + context %s = %s; ",
		mega(m.Weights), mega(m.Intermediates), m.Sessions, mega(m.Handles), mega(m.Context), mega(m.Sum()))
	if m.Given > 0 {
		fmt.Fprintf(&b, "the service is given %s, ", mega(m.Given))
	}
	fmt.Fprintf(&b, "the GPU has %s free besides the context", mega(m.Free))
	return b.String()
}

func mega(bytes int64) string { return fmt.Sprintf("%d MiB", (bytes+1<<20-1)>>20) }

// check returns ErrDeviceFull with the sums if the model does not fit.
func (m DeviceMemory) check() error {
	if m.Given > 0 && m.Sum() > m.Given || m.Sum()-m.Context > m.Free {
		return fmt.Errorf("%w: %s; lower max_batch or the number of segments, give the service more memory, or move a service to another GPU",
			ErrDeviceFull, m)
	}
	return nil
}

// room returns what is left for intermediates.
func (m DeviceMemory) room() int64 {
	left := m.Free - (m.Sum() - m.Context - m.Intermediates)
	if m.Given > 0 {
		left = min(left, m.Given-(m.Sum()-m.Intermediates))
	}
	return max(left, 0)
}

// weightBytes returns the size of all weights that the pieces use, counted once
// for each piece: every session has its own copy.
func (c *cutting) weightBytes() (total int64) {
	for p := range c.pieces {
		for _, id := range c.pieces[p].weights {
			total += initializerBytes(c.inits[id])
		}
	}
	return total
}

func initializerBytes(init *models.Initializer) int64 {
	if init == nil {
		return 0
	}
	return int64(len(init.Raw))
}

// account sets down what the model will need, and refuses one that does not
// fit before anything of it is loaded.
func (e *CutModel) account() (err error) {
	m := &e.memory
	if m.Free, m.Given, err = e.device.memory(); err != nil {
		return err
	}
	m.Weights, m.Sessions, m.Context = e.cut.weightBytes(), len(e.cut.pieces), contextBytes
	m.Handles = int64(m.Sessions) * sessionHandleBytes
	m.Intermediates = 0
	if err := m.check(); err != nil {
		return err
	}
	e.budget = min(e.budget, m.room())
	return nil
}

// DeviceMemory returns what the model needs of the GPU's memory as far as it is
// known: the intermediates are those of the batches that have run. It is zero
// on the CPU.
func (e *CutModel) DeviceMemory() DeviceMemory {
	m := e.memory
	if e.device.far() {
		for _, entry := range e.layouts {
			m.Intermediates = max(m.Intermediates, entry.layout.bytes)
		}
		if free, _, err := e.device.memory(); err == nil {
			m.Taken = m.Free - free
		}
	}
	return m
}
