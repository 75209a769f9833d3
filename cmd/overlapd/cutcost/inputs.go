package cutcost

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/worker"
)

const (
	// integers is how many different integers are made up, from 0. They may be
	// indices: BERT has two token types, and a mask two values.
	integers = 2

	// maxElements bounds one input; more would be a mistake in an option.
	maxElements = 1 << 30
)

// makeInputs makes up inputs from the seed.
func (p *probe) makeInputs() error {
	file, err := models.Open(p.spec.Path)
	if err != nil {
		return err
	}
	model := models.Model{}
	for _, in := range file.Graph.FeedInputs() {
		model.Inputs = append(model.Inputs, models.TensorSpec{Name: in.Name, Type: in.Type})
	}
	if err := file.Close(); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(uint64(p.spec.Seed), 0))
	shapes := models.Fill(model.Inputs, p.spec.Batch, p.spec.SeqLen)
	for i, in := range model.Inputs {
		if err := p.makeInput(in, shapes[i], random); err != nil {
			return err
		}
	}
	return nil
}

func (p *probe) makeInput(in models.TensorSpec, shape []int64, random *rand.Rand) error {
	elem, n := in.Type.Elem, int64(1)
	for _, d := range shape {
		if n *= d; n > maxElements {
			return fmt.Errorf("input %q has over %d elements at this batch and sequence length", in.Name, maxElements)
		}
	}
	if elem.Bytes() == 0 || n == 0 {
		return fmt.Errorf("input %q is %s: no values can be made up for it", in.Name, in.Type)
	}
	data, err := unix.Mmap(-1, 0, int(n)*elem.Bytes(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	p.close = append(p.close, func() error { return unix.Munmap(data) })
	fill(data, elem, random)
	v, err := p.env.TensorOn(data, ort.ElementType(elem), shape)
	if err != nil {
		return err
	}
	p.close = append(p.close, v.Close)
	p.values = append(p.values, v)
	p.query.Inputs = append(p.query.Inputs, worker.Tensor{Type: elem, Shape: shape, Data: data})
	return nil
}

func fill(data []byte, elem models.DataType, random *rand.Rand) {
	size := elem.Bytes()
	for ; len(data) > 0; data = data[size:] {
		switch elem {
		case models.Float32:
			binary.LittleEndian.PutUint32(data, math.Float32bits(float32(random.NormFloat64())))
		case models.Float64:
			binary.LittleEndian.PutUint64(data, math.Float64bits(random.NormFloat64()))
		case models.Float16: // numbers in [1, 2)
			binary.LittleEndian.PutUint16(data, 0x3c00|uint16(random.IntN(1024)))
		case models.Bool:
			data[0] = byte(random.IntN(2))
		default: // a small integer, whatever its size
			data[0] = byte(random.IntN(integers))
		}
	}
}
