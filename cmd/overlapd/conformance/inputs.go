package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"github.com/overlapd/overlapd/ort"
)

// errInput is returned when a value cannot be read or made.
var errInput = errors.New("test data cannot be used")

// Limits of inputs that are made up.
const (
	sampleSeed     = 1
	sampleElements = 1 << 26 // of one input
	sampleRange    = 4       // integers lie below it: they may be indices
)

// set is what goes into a model and what must come out.
type set struct {
	inputs  []value
	outputs []value // nil if they are not known
}

// readSet reads the data of one folder.
func readSet(dir string, inputs, outputs []ort.Info) (set, error) {
	var s set
	var err error
	if s.inputs, err = readValues(dir, "input", inputs); err != nil {
		return s, err
	}
	s.outputs, err = readValues(dir, "output", outputs)
	return s, err
}

// readValues reads the files of one direction. Older data sets list inputs
// that are initializers too; then names decide.
func readValues(dir, direction string, infos []ort.Info) ([]value, error) {
	var list []value
	byName := map[string]int{}
	for i := 0; ; i++ {
		path := filepath.Join(dir, fmt.Sprintf("%s_%d.pb", direction, i))
		if _, err := os.Stat(path); err != nil {
			break
		}
		t := ort.TypeInfo{Kind: ort.KindTensor}
		if i < len(infos) {
			t = infos[i].Type
		}
		v, err := readValue(path, t)
		if err != nil {
			return nil, err
		}
		if t.Elem == ort.BFloat16 && v.elem == ort.Uint16 {
			v.elem = ort.BFloat16 // as the data are written that were made with numpy
		}
		byName[v.name] = len(list)
		list = append(list, v)
	}
	if len(list) == len(infos) {
		return list, nil
	}
	chosen := make([]value, len(infos))
	for i, info := range infos {
		at, ok := byName[info.Name]
		if !ok {
			return nil, fmt.Errorf("%w: %s holds %d of %d %ss", errInput, dir, len(list), len(infos), direction)
		}
		chosen[i] = list[at]
	}
	return chosen, nil
}

// ramp returns a tensor that rises evenly from 0 towards 1: the input that the
// ONNX project feeds its models without weights.
func ramp(info ort.Info) (value, error) {
	v, n, err := blank(info, 1)
	if err != nil || v.elem != ort.Float32 {
		return v, errors.Join(err, requireFloat(v.elem))
	}
	for i := range n {
		v.data = binary.LittleEndian.AppendUint32(v.data, math.Float32bits(float32(float64(i)/float64(n))))
	}
	return v, nil
}

func requireFloat(t ort.ElementType) error {
	if t == ort.Float32 {
		return nil
	}
	return fmt.Errorf("%w: an input of %s", errInput, t)
}

// sample makes up a tensor. Open dimensions become open.
func sample(info ort.Info, open int64, random *rand.Rand) (value, error) {
	v, n, err := blank(info, open)
	if err != nil {
		return v, err
	}
	if v.elem == ort.String {
		for range n {
			v.strings = append(v.strings, strconv.AppendInt(nil, random.Int64N(100), 10))
		}
		return v, nil
	}
	for range n {
		if v.data, err = appendSample(v.data, v.elem, random); err != nil {
			return v, err
		}
	}
	return v, nil
}

func appendSample(data []byte, t ort.ElementType, random *rand.Rand) ([]byte, error) {
	switch t {
	case ort.Float32:
		return binary.LittleEndian.AppendUint32(data, math.Float32bits(random.Float32())), nil
	case ort.Float64:
		return binary.LittleEndian.AppendUint64(data, math.Float64bits(random.Float64())), nil
	case ort.Float16:
		// Between 1 and 2: any fraction beside the exponent of one.
		return binary.LittleEndian.AppendUint16(data, 0x3c00|uint16(random.UintN(1<<10))), nil
	case ort.Bool:
		return append(data, byte(random.UintN(2))), nil
	case ort.Int8, ort.Uint8, ort.Int16, ort.Uint16, ort.Int32, ort.Uint32, ort.Int64, ort.Uint64:
		var b [8]byte
		b[0] = byte(random.UintN(sampleRange))
		return append(data, b[:elementBytes(t)]...), nil
	}
	return nil, fmt.Errorf("%w: an input of %s", errInput, t)
}

// blank returns a tensor without data and how many elements it shall have.
func blank(info ort.Info, open int64) (value, int64, error) {
	if info.Type.Kind != ort.KindTensor {
		return value{}, 0, fmt.Errorf("%w: input %q is a %s", errInput, info.Name, info.Type.Kind)
	}
	v := value{name: info.Name, kind: ort.KindTensor, elem: info.Type.Elem, dims: []int64{}}
	n := int64(1)
	for _, d := range info.Type.Dims {
		if d < 0 {
			d = open
		}
		v.dims = append(v.dims, d)
		if n *= d; n > sampleElements {
			return v, 0, fmt.Errorf("%w: input %q is too large", errInput, info.Name)
		}
	}
	return v, n, nil
}
