package segments

import (
	"fmt"

	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// batch is one batch between its first and its last operator.
type batch struct {
	sizes    []int // batch dimension of each query, in gather order
	size     int   // their sum
	next     int   // the operator to run next
	frame    *frame
	given    []*ort.Value // model inputs that are the batch's to close
	key      layoutKey
	shapes   []shape  // by value, what this run taught so far; nil if nothing is to learn
	bytes    int64    // what ONNX Runtime holds for it
	gathered int64    // the part of bytes that holds gathered inputs
	regions  []region // of the device's memory, that are the batch's to free
}

// run runs operators [b.next, end) and stops early at an operator boundary
// once *stop is not zero.
func (b *batch) run(e *CutModel, end int, stop *uint32) (err error) {
	if e.device.far() {
		return b.runFar(e, end, stop)
	}
	if b.shapes != nil {
		return b.learn(e, end, stop)
	}
	b.next, err = b.frame.program.Run(e.runOptions, b.next, end, stop)
	if err == nil && len(b.frame.loose) > 0 {
		b.bytes = b.gathered + b.frame.looseBytes()
		err = b.checkBudget(e)
	}
	return err
}

// learn runs like run and notes the shape of every value on the way.
func (b *batch) learn(e *CutModel, end int, stop *uint32) error {
	for b.next < end {
		p := b.next
		reached, err := b.frame.program.Run(e.runOptions, p, p+1, stop)
		if err != nil || reached == p {
			return err
		}
		b.next = reached
		b.note(e, p)
		if err := b.checkBudget(e); err != nil {
			return err
		}
	}
	if b.next == len(e.cut.pieces) {
		e.learn(b)
	}
	return nil
}

// note keeps the shapes of what operator p made and frees what it used last.
func (b *batch) note(e *CutModel, p int) {
	pc := &e.cut.pieces[p]
	for pos, id := range pc.outputs {
		s := shapeOf(b.frame.program.Output(p, pos))
		s.known = s.dims != nil && e.known[id].shape && e.types[id].Elem.Bytes() > 0
		b.shapes[id] = s
		b.bytes += s.bytes
	}
	for _, ids := range [2][]int32{pc.inputs, pc.outputs} {
		for _, id := range ids {
			if made := e.made[id]; made.piece >= 0 && e.cut.lastAt[id] <= p {
				b.frame.program.Drop(made.piece, made.pos)
				b.bytes -= b.shapes[id].bytes
			}
		}
	}
}

func (b *batch) checkBudget(e *CutModel) error {
	if e.makeRoom(0) {
		return nil
	}
	return fmt.Errorf("%w: a batch of %d needs %d bytes at operator %d, all batches together %d, the budget is %d; raise intermediate_bytes",
		wire.ErrMemory, b.size, b.bytes, b.next, e.IntermediateBytes(), e.budget)
}

// value returns the value of id, nil if it does not exist any more.
func (b *batch) value(e *CutModel, id int32) *ort.Value {
	if v := b.frame.values[id]; v != nil {
		return v
	}
	made := e.made[id]
	return b.frame.program.Output(made.piece, made.pos)
}

// close lets go of all that the batch holds but its frame. Nothing that uses
// it may be queued.
func (b *batch) close(d device) {
	for _, v := range b.given {
		v.Close()
	}
	for _, m := range b.regions {
		_ = d.free(m) // what cannot be freed is gone with the device
	}
	b.given, b.regions = nil, nil
	b.bytes = 0
}
