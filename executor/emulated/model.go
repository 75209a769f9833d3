package emulated

import (
	"fmt"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// What the models of an emulated device look like from outside. It is nothing
// like what the real ones take: a query has what the daemon must see of it, its
// batch size and its sequence length.
const (
	InputName  = "input"
	OutputName = "output"

	// Columns is how many numbers there are for each query of a batch, in the
	// output and in the input of a model without sequences.
	Columns = 4
)

// Model is a model that a device knows.
type Model struct {
	Name      string
	Position  int // on the device
	Operators int
	Hash      string // of what describes it
	Sizes     []int  // batch sizes that were measured
	SeqLens   []int  // sequence lengths that were measured, none if it takes no sequences
}

// info describes the model as a worker would that has loaded it, with the times
// that the device says its operators take alone.
func (m *Model) info(latency func(models.Group) time.Duration) wire.Info {
	batch := models.Dim{Value: -1, Name: "batch"}
	columns := models.Dim{Value: Columns}
	input := models.Tensor(models.Float32, batch, columns)
	seqLens := []int{0}
	if len(m.SeqLens) > 0 {
		input = models.Tensor(models.Int64, batch, models.Dim{Value: -1, Name: "sequence"})
		seqLens = m.SeqLens
	}
	i := wire.Info{
		Inputs:    []models.TensorSpec{{Name: InputName, Type: input}},
		Outputs:   []models.TensorSpec{{Name: OutputName, Type: models.Tensor(models.Float32, batch, columns)}},
		Operators: make([]models.Operator, m.Operators),
		Hash:      m.Hash,
	}
	for o := range i.Operators {
		i.Operators[o] = models.Operator{Name: fmt.Sprintf("%s/%d", m.Name, o), Type: "emulated", Nodes: 1}
	}
	for _, size := range m.Sizes {
		for _, seqLen := range seqLens {
			i.Solo = append(i.Solo, wire.Solo{Size: size, SeqLen: seqLen, Nanos: device.OperatorTimes(latency, m.Position, m.Operators, size, seqLen)})
		}
	}
	return i
}
