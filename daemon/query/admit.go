package query

import (
	"hash/maphash"
	"math"

	"github.com/overlapd/overlapd/models"
)

// Check validates the inputs against the model and against each other, and the requested
// variant. It reads no element: Admit does.
func (c *Call) Check() *Error {
	sig := c.Signature
	for n := range sig.Inputs {
		p, in := &sig.Inputs[n], &c.Given[n]
		if !in.given {
			return Invalid("input %q is missing", p.Name)
		}
		if err := c.checkShape(p, in); err != nil {
			return err
		}
		if err := in.checkBytes(); err != nil {
			return err
		}
		if sig.Batched && in.Shape[0] != c.Given[0].Shape[0] {
			return Invalid("input %q has batch size %d, but input %q has %d",
				p.Name, in.Shape[0], sig.Inputs[0].Name, c.Given[0].Shape[0])
		}
	}
	return c.checkVariant()
}

// checkShape compares a shape with the model's. Dimensions with the same name must be equal
// over all inputs.
func (c *Call) checkShape(p *Port, in *Input) *Error {
	if p.AnyRank {
		return nil
	}
	if len(in.Shape) != len(p.Dims) {
		return Invalid("input %q has rank %d, but the model has %d", p.Name, len(in.Shape), len(p.Dims))
	}
	for i, want := range p.Dims {
		got := in.Shape[i]
		if want >= 0 && got != want {
			return Invalid("input %q has %d in dimension %d, but the model has %d", p.Name, got, i, want)
		}
		if link := p.link[i]; link >= 0 {
			if c.links[link] == 0 {
				c.links[link] = got
			}
			if c.links[link] != got {
				return Invalid("input %q has %d in dimension %d, but another input has %d there",
					p.Name, got, i, c.links[link])
			}
		}
	}
	return nil
}

// Admit checks a call against the limits of its service and copies its inputs into shared
// memory. This is the only copy of the inputs. write puts the elements of an input into dst
// and returns the number of bytes written.
func (c *Call) Admit(write func(dst []byte, in *Input) (int, *Error)) *Error {
	s, sig := c.Service, c.Signature
	c.Size, c.SeqLen, c.Shape = 1, 0, c.shapeHash()
	if sig.Batched {
		c.Size = int(c.Given[0].Shape[0])
	}
	if sig.seq.input >= 0 {
		c.SeqLen = int(c.Given[sig.seq.input].Shape[sig.seq.dim])
	}
	if c.Size > s.MaxQueryBatch {
		return Invalid("the batch size is %d, and the limit of this service is %d", c.Size, s.MaxQueryBatch)
	}
	if s.MaxSeqLen > 0 && c.SeqLen > s.MaxSeqLen {
		return Invalid("the sequence length is %d, and the limit of this service is %d", c.SeqLen, s.MaxSeqLen)
	}
	room, ok := c.room()
	if !ok {
		return ErrTooLarge
	}
	m, failed := s.Backend.Alloc(s, room)
	if failed != nil {
		return asError(failed)
	}
	at := int64(0)
	for i := range c.Given {
		in := &c.Given[i]
		at = Aligned(at)
		end := at + in.room
		c.TextBytes += len(in.Text)
		n, err := write(m.Bytes[at:end:end], in)
		if err != nil {
			s.Backend.Free(s, m)
			return err
		}
		// Text and Data pointed into the request body, which the codec may now release.
		in.Text, in.Data = nil, nil
		c.Inputs = append(c.Inputs, models.Tensor{
			Type: in.Type, Shape: in.Shape, Data: m.Bytes[at : at+int64(n) : at+int64(n)], Offset: m.Offset + at, Bytes: int64(n),
		})
		at = end
	}
	c.Memory = m
	return nil
}

// room returns the bytes of shared memory that all inputs need, alignment included, and
// false if the sum overflows.
func (c *Call) room() (int64, bool) {
	var sum int64
	for i := range c.Given {
		n := c.Given[i].room
		if n > math.MaxInt64-Alignment-sum {
			return 0, false
		}
		sum = Aligned(sum) + n
	}
	return sum, true
}

// shapeSeed is random for each process, so that clients cannot construct colliding shapes.
var shapeSeed = maphash.MakeSeed()

// shapeHash returns a hash of all input shapes without the batch dimension. It is only
// comparable within this process.
func (c *Call) shapeHash() uint64 {
	type link struct {
		before uint64
		value  int
	}
	h := uint64(len(c.Given))
	for i := range c.Given {
		dims := c.Given[i].Shape
		if c.Signature.Batched {
			dims = dims[1:]
		}
		h = maphash.Comparable(shapeSeed, link{h, len(dims)})
		for _, d := range dims {
			h = maphash.Comparable(shapeSeed, link{h, int(d)})
		}
	}
	return h
}
