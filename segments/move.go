package segments

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// A batch that moves to another process takes along the values that operators have produced
// and that later operators read, including outputs of the model. The receiving engine
// treats these values like inputs: the batch's frame is laid out only for the remaining
// operators, and on the CPU the values are used in place.

// movedValue is a value that another process has produced.
type movedValue struct {
	id    int32
	value *ort.Value
}

// alive returns, in ascending order, the values that a batch takes along at an operator.
// The number cut is a hash of their names, so that engines can compare their lists.
func (m *loaded) alive(at int) (ids []int32, cut uint64) {
	h := fnv.New64a()
	for id, made := range m.made {
		if made.piece >= 0 && made.piece < at && m.cut.lastAt[id] >= at {
			ids = append(ids, int32(id))
			h.Write(strconv.AppendQuote(nil, m.cut.values.Names[id]))
		}
	}
	return ids, h.Sum64()
}

// Describe returns the types, shapes and sizes of the values that batch id takes along to
// another engine, and the number that identifies the list of values.
func (m *CutModel) Describe(id models.BatchID) (list []models.Tensor, cut uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.describe(id)
}

func (m *CutModel) describe(id models.BatchID) (list []models.Tensor, cut uint64, err error) {
	b := m.pool.batches[id]
	if b == nil {
		return nil, 0, fmt.Errorf("batch %d: %w", id, wire.ErrUnknownBatch)
	}
	ids, cut := m.loaded.alive(b.next)
	if len(ids) > wire.MaxTensors {
		return nil, 0, fmt.Errorf("%w: %d values are live at operator %d, and the limit is %d", wire.ErrMove, len(ids), b.next, wire.MaxTensors)
	}
	for _, id := range ids {
		v := b.value(m.loaded, id)
		if v == nil || !v.IsTensor() {
			return nil, 0, fmt.Errorf("%w: value %q, live at operator %d, is not a tensor: move the batch at another operator", wire.ErrMove, m.loaded.cut.values.Names[id], b.next)
		}
		t := models.Tensor{Type: v.Elem(), Shape: v.Shape()}
		t.Bytes = elements(t.Shape) * int64(t.Type.Bytes())
		if t.Type == models.String {
			text, err := v.Strings()
			if err != nil {
				return nil, 0, err
			}
			t.Bytes = stringsBytes(text)
		}
		list = append(list, t)
	}
	return list, cut, nil
}

// Export writes the values that batch id takes along, and releases the batch.
func (m *CutModel) Export(id models.BatchID, to []models.Tensor) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	values, _, err := m.describe(id)
	if err != nil {
		return err
	}
	b := m.pool.batches[id]
	defer m.release(id)
	if !slices.EqualFunc(to, values, func(dst, t models.Tensor) bool { return int64(len(dst.Data)) == t.Bytes }) {
		return fmt.Errorf("%w: its %d values do not fit into the memory provided", wire.ErrMove, len(values))
	}
	if err := m.run.span(b, b.next, nil); err != nil { // runs no operator, but opens the span to which the copies belong
		return m.loaded.device.Fault(err)
	}
	ids, _ := m.loaded.alive(b.next)
	for i, id := range ids {
		v := b.value(m.loaded, id)
		if values[i].Type == models.String {
			text, err := v.Strings()
			if err != nil {
				return err
			}
			putStrings(to[i].Data, text)
			continue
		}
		from, err := m.run.open(v, id)
		if err == nil {
			_, err = m.run.read(to[i].Data, from)
		}
		if err != nil {
			return m.loaded.device.Fault(err)
		}
	}
	return m.loaded.device.Fault(m.run.collect())
}

// Import begins batch id at an operator with the values that Export of another engine of
// the same model has written. It reports whether the values were copied. If not, they are
// used in place until the batch is finished or released.
func (m *CutModel) Import(id models.BatchID, at int, queries []wire.QueryTensors, cut uint64, values []models.Tensor) (copied bool, err error) {
	ids, own := m.loaded.alive(at)
	if own != cut || len(ids) != len(values) {
		return true, fmt.Errorf("%w: %d values arrived for operator %d, which needs %d: the workers have cut the model differently", wire.ErrMove, len(values), at, len(ids))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.begin(id, at, queries, ids, values)
}

// checkValue returns an error if a tensor cannot be the value with this ID.
func (m *loaded) checkValue(id int32, t *models.Tensor) error {
	want := m.types[id]
	n, ok := models.Elements(t.Shape)
	ok = ok && want.Kind == models.KindTensor && t.Type == want.Elem && (!want.HasShape || len(want.Shape) == len(t.Shape))
	ok = ok && (t.Type == models.String || n*int64(t.Type.Bytes()) == int64(len(t.Data)))
	for i := 0; ok && want.HasShape && i < len(t.Shape); i++ {
		ok = !want.Shape[i].Fixed() || want.Shape[i].Value == t.Shape[i]
	}
	if !ok {
		return fmt.Errorf("%w: value %q is %s%v in %d bytes, but the model has %s", wire.ErrMove, m.cut.values.Names[id], t.Type, t.Shape, len(t.Data), want)
	}
	return nil
}

// placeValue makes a tensor from another process the value with this ID.
func (m *CutModel) placeValue(b *batch, id int32, t *models.Tensor) (copied bool, err error) {
	data, elem := t.Data, t.Type
	if b.shapes != nil && m.loaded.far && m.loaded.known[id].shape && elem.Bytes() > 0 {
		b.shapes[id] = shape{dims: slices.Clone(t.Shape), bytes: elements(t.Shape) * int64(elem.Bytes()), known: true}
	}
	if elem != models.String {
		return m.run.place(b, id, elem, t.Shape, data)
	}
	list, err := parseStrings(data, elements(t.Shape))
	if err != nil {
		return true, err
	}
	return true, m.pool.bounded(b, func() error {
		v, err := m.loaded.env.StringTensor(list, t.Shape)
		if err == nil {
			m.loaded.adopt(b, id, v)
		}
		return err
	})
}

// adopt makes v the value with this ID. The batch closes v.
func (m *loaded) adopt(b *batch, id int32, v *ort.Value) {
	b.given = append(b.given, v)
	b.moved = append(b.moved, movedValue{id, v})
	for p := b.key.from; p < len(m.cut.pieces) && p <= m.cut.lastAt[id]; p++ {
		if pos := slices.Index(m.cut.pieces[p].inputs, id); pos >= 0 {
			b.frame.program.SetInput(p, pos, v)
		}
	}
}
