package segments

import (
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

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
	*m = wire.NeedDeviceMemory(e.cut.weightBytes(), len(e.cut.pieces))
	if m.Free, m.Given, err = e.device.memory(); err != nil {
		return err
	}
	if err := m.Check(); err != nil {
		return err
	}
	e.budget = min(e.budget, m.Room())
	return nil
}

// DeviceMemory returns what the model needs of the GPU's memory as far as it is
// known: the intermediates are those of the batches that have run. It is zero
// on the CPU.
func (e *CutModel) DeviceMemory() wire.DeviceMemory {
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
