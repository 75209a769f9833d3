package segments

import (
	"fmt"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// Finish splits the outputs of a finished batch among its queries, writes them
// to the memory that out returns, and forgets the batch, also when it fails.
func (e *CutModel) Finish(id models.BatchID, out worker.OutputFunc) error {
	b, err := e.finished(id)
	if err != nil {
		return err
	}
	defer e.Release(id)
	r := reader{e: e}
	for i := range e.outputs {
		if err := e.split(b, i, &r, out); err != nil {
			return e.device.fault(err)
		}
	}
	return e.device.fault(r.done())
}

// split hands the i-th output to the queries of b.
func (e *CutModel) split(b *batch, i int, r *reader, out worker.OutputFunc) error {
	name := e.model.Outputs[i].Name
	v := b.value(e, e.outputs[i])
	if v == nil || !v.IsTensor() {
		return fmt.Errorf("%w: output %q is not a tensor", wire.ErrOutput, name)
	}
	elem, dims := models.DataType(v.Elem()), v.Shape()
	if len(b.sizes) > 1 && (len(dims) == 0 || dims[0] != int64(b.size)) {
		return fmt.Errorf("%w: output %q has shape %v, it cannot be split among %d queries of %d in all; set max_batch = 1 for this service",
			wire.ErrOutput, name, dims, len(b.sizes), b.size)
	}
	if elem == models.String {
		if err := e.settle(); err != nil {
			return err
		}
		return splitStrings(b, i, v, dims, out)
	}
	if err := r.open(v, e.outputs[i]); err != nil {
		return fmt.Errorf("%w: output %q: %w", wire.ErrOutput, name, err)
	}
	var offset int64
	for q, size := range b.sizes {
		share := append([]int64(nil), dims...)
		if len(b.sizes) > 1 {
			share[0] = int64(size)
		}
		n := elements(share) * int64(elem.Bytes())
		dst, err := out(q, i, elem, share, n)
		if err != nil {
			return err
		}
		if err := r.read(dst[:n], offset); err != nil {
			return err
		}
		offset += n
	}
	return nil
}

func splitStrings(b *batch, i int, v *ort.Value, dims []int64, out worker.OutputFunc) error {
	list, err := v.Strings()
	if err != nil {
		return err
	}
	for q, size := range b.sizes {
		share := append([]int64(nil), dims...)
		if len(b.sizes) > 1 {
			share[0] = int64(size)
		}
		n := elements(share)
		dst, err := out(q, i, models.String, share, stringsBytes(list[:n]))
		if err != nil {
			return err
		}
		putStrings(dst, list[:n])
		list = list[n:]
	}
	return nil
}
