package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"github.com/overlapd/overlapd/models"
)

var le = binary.LittleEndian

// decoder takes fixed fields off the front of a payload. The first field that
// is missing or out of bounds sets failed; every later field is then zero.
type decoder struct {
	data   []byte
	failed bool
}

func (d *decoder) take(n int) []byte {
	if d.failed || len(d.data) < n {
		d.failed = true
		return nil
	}
	field := d.data[:n]
	d.data = d.data[n:]
	return field
}

func (d *decoder) uint8() uint8 {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint32() uint32 {
	if b := d.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

// size reads a number of bytes, operators or nanoseconds, none of which is
// ever negative.
func (d *decoder) size() int64 {
	v := int64(d.uint64())
	if v < 0 {
		d.failed = true
		return 0
	}
	return v
}

func (d *decoder) position() int {
	v := d.uint32()
	if v > maxPosition {
		d.failed = true
		return 0
	}
	return int(v)
}

// count reads how many elements follow, of at least elementBytes each, so
// that memory is only ever asked for what the payload can hold.
func (d *decoder) count(limit, elementBytes int) int {
	n := d.uint32()
	if d.failed || n > uint32(limit) || int(n)*elementBytes > len(d.data) {
		d.failed = true
		return 0
	}
	return int(n)
}

func (d *decoder) bool() bool {
	v := d.uint8()
	if v > 1 {
		d.failed = true
	}
	return v == 1
}

// done returns nil if all fields were there and nothing is left.
func (d *decoder) done(k Kind) error {
	switch {
	case d.failed:
		return fmt.Errorf("%w: %s", ErrMessage, k)
	case len(d.data) != 0:
		return fmt.Errorf("%w: %s has %d bytes too many", ErrMessage, k, len(d.data))
	}
	return nil
}

const maxPosition = 1<<31 - 1 // of an operator

// Tensor is a tensor in shared memory.
type Tensor struct {
	Type   models.DataType
	Shape  []int64
	Offset int64
	Bytes  int64
}

const tensorBytes = 4 + 1 + 8 + 8 // without its shape

func (t *Tensor) check() error {
	if len(t.Shape) > MaxRank || t.Offset < 0 || t.Bytes < 0 {
		return fmt.Errorf("%w: tensor of rank %d, %d bytes at %d", ErrMessage, len(t.Shape), t.Bytes, t.Offset)
	}
	for _, dim := range t.Shape {
		if dim < 0 {
			return fmt.Errorf("%w: shape %v", ErrMessage, t.Shape)
		}
	}
	return nil
}

// In returns the bytes of the tensor in memory, nil if they are not inside or are
// not as many as its shape has. Of strings only a lower bound is known.
func (t *Tensor) In(memory []byte) []byte {
	if !fits(t.Type, t.Shape, t.Bytes) {
		return nil
	}
	return window(memory, t.Offset, t.Bytes)
}

func appendTensor(dst []byte, t *Tensor) ([]byte, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	dst = le.AppendUint32(dst, uint32(t.Type))
	dst = append(dst, uint8(len(t.Shape)))
	for _, dim := range t.Shape {
		dst = le.AppendUint64(dst, uint64(dim))
	}
	dst = le.AppendUint64(dst, uint64(t.Offset))
	return le.AppendUint64(dst, uint64(t.Bytes)), nil
}

// tensor reads one tensor and appends its shape to dims.
func (d *decoder) tensor(t *Tensor, dims []int64) []int64 {
	t.Type = models.DataType(d.uint32())
	rank := int(d.uint8())
	if rank > MaxRank {
		d.failed = true
		return dims
	}
	start := len(dims)
	for range rank {
		dims = append(dims, d.size())
	}
	t.Shape = dims[start:len(dims):len(dims)]
	t.Offset = d.size()
	t.Bytes = d.size()
	return dims
}

func appendJSON(dst []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return append(dst, text...), nil
}

func decodeJSON(payload []byte, k Kind, v any) error {
	if err := json.Unmarshal(payload, v); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMessage, k, err)
	}
	return nil
}

// resize returns s with length n, keeping its memory where that is enough.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// What a worker sends while it loads is JSON, and goes into the daemon's log,
// its state and its keys. It may come from a process that a foreign model has
// taken over, so each part of it has a limit.
const (
	maxNoteBytes    = 8 * maxMessageBytes // of JSON: a text of the largest size with every character escaped
	maxPhaseBytes   = 256
	maxLabelBytes   = 256     // a hash, a version, the name of a device
	maxInfoElements = 1 << 20 // of all lists and objects of an Info together, which bounds the memory that decoding takes
)

// decodeNote is decodeJSON for what is short.
func decodeNote(payload []byte, k Kind, v any) error {
	if len(payload) > maxNoteBytes {
		return fmt.Errorf("%w: %s of %d bytes, the limit is %d", ErrMessage, k, len(payload), maxNoteBytes)
	}
	return decodeJSON(payload, k, v)
}

// checkProgress bounds what is said of how far loading has come.
func checkProgress(k Kind, phase string, done, total int64) error {
	if len(phase) > maxPhaseBytes || done < 0 || total < 0 {
		return fmt.Errorf("%w: %s: %d of %d in a phase of %d letters", ErrMessage, k, done, total, len(phase))
	}
	return nil
}

// checkElements refuses an Info that is small as text and large once decoded.
func checkElements(payload []byte) error {
	if n := bytes.Count(payload, []byte{','}); n > maxInfoElements {
		return fmt.Errorf("%w: %s of %d elements, the limit is %d", ErrMessage, KindReady, n, maxInfoElements)
	}
	return nil
}

func (i *Info) check() error {
	if len(i.Inputs) > MaxTensors || len(i.Outputs) > MaxTensors || len(i.Operators) == 0 || i.LoadNanos < 0 {
		return fmt.Errorf("%w: %s with %d inputs, %d outputs, %d operators, loaded in %d ns",
			ErrMessage, KindReady, len(i.Inputs), len(i.Outputs), len(i.Operators), i.LoadNanos)
	}
	labels := []string{i.Hash, i.ORTVersion, i.Device}
	if i.Cut != nil {
		labels = append(labels, i.Cut.Hash, i.Cut.ORTVersion)
		i.Cut.Reason = clip(i.Cut.Reason)
	}
	for _, label := range labels {
		if len(label) > maxLabelBytes {
			return fmt.Errorf("%w: %s with a hash, version or device of %d letters", ErrMessage, KindReady, len(label))
		}
	}
	for _, list := range [2][]models.TensorSpec{i.Inputs, i.Outputs} {
		for _, t := range list {
			if len(t.Type.Shape) > MaxRank {
				return fmt.Errorf("%w: %s with a tensor of rank %d", ErrMessage, KindReady, len(t.Type.Shape))
			}
		}
	}
	for _, t := range i.Solo {
		if len(t.Nanos) != len(i.Operators) {
			return fmt.Errorf("%w: %s with times of %d operators, the model has %d", ErrMessage, KindReady, len(t.Nanos), len(i.Operators))
		}
	}
	return nil
}
