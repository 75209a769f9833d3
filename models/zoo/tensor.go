package zoo

import (
	"encoding/binary"
	"hash/fnv"
	"io"
	"math"

	"github.com/overlapd/overlapd/models"
)

// tensor is an initializer of the graph. Its content is generated while it is written, so that
// a model need not fit in memory.
type tensor struct {
	name    string
	elem    models.DataType
	dims    []int64
	fill    fill
	trained bool
}

// fill describes the content of a tensor: the given integers, or random numbers distributed
// uniformly over center ± spread.
type fill struct {
	center   float32
	spread   float32
	integers []int64
}

// around returns a fill with the given mean and standard deviation. A uniform distribution of
// half-width s has the standard deviation s/√3.
func around(mean, deviation float64) fill {
	return fill{center: float32(mean), spread: float32(math.Sqrt(3) * deviation)}
}

// forRelu returns the fill (He initialization) that preserves the variance of activations
// between layers that are each followed by a Relu. fanIn is the number of products that one
// output sums.
func forRelu(fanIn int64) fill { return around(0, math.Sqrt(2/float64(fanIn))) }

// forLinear returns the fill that preserves the variance of activations without a Relu.
func forLinear(fanIn int64) fill { return around(0, math.Sqrt(1/float64(fanIn))) }

func (t *tensor) elements() int64 {
	n, _ := models.Elements(t.dims)
	return n
}

func (t *tensor) bytes() int64 { return t.elements() * int64(t.elem.Bytes()) }

// encode writes the elements from index first on to dst, which holds a whole number of
// elements. Calls must be in order and use the tensor's own stream.
func (t *tensor) encode(dst []byte, first int64, s *stream) {
	switch t.elem {
	case models.Int64:
		for i := range len(dst) / 8 {
			binary.LittleEndian.PutUint64(dst[8*i:], uint64(t.fill.integers[first+int64(i)]))
		}
	case models.Float16:
		for i := range len(dst) / 2 {
			binary.LittleEndian.PutUint16(dst[2*i:], models.EncodeFloat16(t.fill.draw(s)))
		}
	default:
		for i := range len(dst) / 4 {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(t.fill.draw(s)))
		}
	}
}

// draw returns the next number. The conversion rounds the product to 32 bits. Without it a
// compiler may fuse multiplication and addition, which gives other bytes on some processors.
func (f *fill) draw(s *stream) float32 {
	return f.center + float32(f.spread*s.next())
}

// stream is a splitmix64 generator. Every tensor has its own, so that its content does not
// depend on other tensors.
type stream struct {
	state uint64
	spare uint32
	// full is set while spare holds an unused number.
	full bool
}

// streamStep is splitmix64's increment, 2^64 divided by the golden ratio.
const streamStep = 0x9e3779b97f4a7c15

// newStream returns the stream of the named tensor.
func newStream(seed uint64, name string) *stream {
	hash := fnv.New64a()
	io.WriteString(hash, name)
	return &stream{state: mix(seed+streamStep) ^ hash.Sum64()}
}

// next returns a number in [-1, 1) with 24 random bits, which float32 represents exactly.
func (s *stream) next() float32 {
	const scale = 1.0 / (1 << 23)
	bits := s.spare
	if s.full = !s.full; s.full {
		s.state += streamStep
		z := mix(s.state)
		bits, s.spare = uint32(z>>32), uint32(z)
	}
	return float32(int32(bits)>>8) * scale
}

// mix is the output function of splitmix64.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
