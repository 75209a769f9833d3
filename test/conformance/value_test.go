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

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
)

var little = binary.LittleEndian

// errInput is returned when a value cannot be read or made.
var errInput = errors.New("test data cannot be used")

// Limits of inputs that are made up.
const (
	sampleSeed     = 1
	sampleElements = 1 << 26 // of one input
	sampleRange    = 4       // integers lie below it: they may be indices
)

// value is a tensor, a sequence or an optional in memory of our own. Its kind is
// KindUnknown for an optional that is empty.
type value struct {
	name    string
	kind    models.Kind
	elem    models.DataType
	dims    []int64
	data    []byte   // of a tensor, as it lies in memory
	strings [][]byte // of a tensor of strings
	items   []value  // of a sequence
}

// toRuntime makes values of ONNX Runtime. Those made before an error are returned
// with it.
func toRuntime(env *ort.Env, list []value) (made []*ort.Value, err error) {
	for _, v := range list {
		r, err := v.toRuntime(env)
		if err != nil {
			return made, fmt.Errorf("%w: %w", errInput, err)
		}
		made = append(made, r)
	}
	return made, nil
}

func (v value) toRuntime(env *ort.Env) (*ort.Value, error) {
	switch {
	case v.kind == models.KindSequence && len(v.items) > 0:
		items, err := toRuntime(env, v.items)
		defer closeAll(items)
		if err != nil {
			return nil, err
		}
		return env.Sequence(items)
	case v.kind != models.KindTensor:
		return nil, errors.New("an empty optional or sequence")
	case v.elem == models.String:
		return env.StringTensor(v.strings, v.dims)
	}
	t, err := env.NewTensor(v.elem, v.dims)
	if err != nil {
		return nil, err
	}
	data, err := t.Bytes()
	if err == nil && copy(data, v.data) != max(len(data), len(v.data)) {
		err = fmt.Errorf("%d bytes of data for a tensor of %d", len(v.data), len(data))
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// fromRuntime copies values of ONNX Runtime.
func fromRuntime(list []*ort.Value) ([]value, error) {
	copies := make([]value, len(list))
	for i, v := range list {
		if v == nil {
			return nil, fmt.Errorf("output %d is missing", i)
		}
		if !v.HasValue() {
			continue
		}
		c := value{kind: v.Kind()}
		var err error
		switch {
		case c.kind == models.KindSequence:
			var items []*ort.Value
			if items, err = v.Items(); err == nil {
				c.items, err = fromRuntime(items)
				closeAll(items)
			}
		case c.kind != models.KindTensor:
			err = fmt.Errorf("%w: a value of kind %d", errInput, c.kind)
		case v.Elem() == models.String:
			c.elem, c.dims = v.Elem(), v.Shape()
			c.strings, err = v.Strings()
		default:
			var data []byte
			c.elem, c.dims = v.Elem(), v.Shape()
			data, err = v.Bytes()
			c.data = append([]byte(nil), data...)
		}
		if err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
		copies[i] = c
	}
	return copies, nil
}

func closeAll(list []*ort.Value) {
	for _, v := range list {
		if v != nil {
			v.Close()
		}
	}
}

// set is what goes into a model and what must come out.
type set struct {
	inputs  []value
	outputs []value // nil until they are known
}

// readSets returns the inputs to run the model with. Where none come with it, they
// are made up, with open dimensions of 1 and of 3.
func readSets(m model, whole *ort.Session) (sets []set, err error) {
	for _, dir := range m.Sets {
		var s set
		if s.inputs, err = readValues(dir, "input", whole.Inputs()); err == nil {
			s.outputs, err = readValues(dir, "output", whole.Outputs())
		}
		if err != nil {
			return nil, err
		}
		sets = append(sets, s)
	}
	if len(sets) > 0 {
		return sets, nil
	}
	if m.Output != "" && len(whole.Inputs()) == 1 && len(whole.Outputs()) == 1 && whole.Inputs()[0].Elem == models.Float32 {
		in, n, err := blank(whole.Inputs()[0], 1)
		if err != nil {
			return nil, err
		}
		for i := range n { // rising from 0 towards 1, as the ONNX project feeds its models without weights
			in.data = little.AppendUint32(in.data, math.Float32bits(float32(float64(i)/float64(n))))
		}
		out, err := readValue(m.Output, whole.Outputs()[0])
		return []set{{[]value{in}, []value{out}}}, err
	}
	random := rand.New(rand.NewPCG(sampleSeed, 0))
	for _, open := range []int64{1, 3} {
		var s set
		for _, info := range whole.Inputs() {
			v, err := sample(info, open, random)
			if err != nil {
				return nil, err
			}
			s.inputs = append(s.inputs, v)
		}
		sets = append(sets, s)
	}
	return sets, nil
}

// readValues reads the files of one direction. Older data sets list inputs that are
// initializers too; then names decide.
func readValues(dir, direction string, infos []ort.TypeInfo) ([]value, error) {
	var list []value
	byName := map[string]int{}
	for i := 0; ; i++ {
		path := filepath.Join(dir, fmt.Sprintf("%s_%d.pb", direction, i))
		if _, err := os.Stat(path); err != nil {
			break
		}
		t := ort.TypeInfo{Type: models.TensorType(models.Undefined)}
		if i < len(infos) {
			t = infos[i]
		}
		v, err := readValue(path, t)
		if err != nil {
			return nil, err
		}
		if t.Elem == models.BFloat16 && v.elem == models.Uint16 {
			v.elem = models.BFloat16 // as the data are written that were made with numpy
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

// sample makes up a tensor. Open dimensions become open.
func sample(info ort.TypeInfo, open int64, random *rand.Rand) (value, error) {
	v, n, err := blank(info, open)
	for range n {
		switch v.elem {
		case models.String:
			v.strings = append(v.strings, strconv.AppendInt(nil, random.Int64N(100), 10))
		case models.Float32:
			v.data = little.AppendUint32(v.data, math.Float32bits(random.Float32()))
		case models.Float64:
			v.data = little.AppendUint64(v.data, math.Float64bits(random.Float64()))
		case models.Float16: // between 1 and 2: any fraction beside the exponent of one
			v.data = little.AppendUint16(v.data, 0x3c00|uint16(random.UintN(1<<10)))
		case models.Bool:
			v.data = append(v.data, byte(random.UintN(2)))
		case models.Int8, models.Uint8, models.Int16, models.Uint16, models.Int32, models.Uint32, models.Int64, models.Uint64:
			v.data = append(v.data, little.AppendUint64(nil, uint64(random.UintN(sampleRange)))[:elementBytes(v.elem)]...)
		default:
			return v, fmt.Errorf("%w: an input of %s", errInput, v.elem)
		}
	}
	return v, err
}

// blank returns a tensor without data and how many elements it shall have.
func blank(info ort.TypeInfo, open int64) (value, int64, error) {
	if info.Kind != models.KindTensor {
		return value{}, 0, fmt.Errorf("%w: input %q is %s", errInput, info.Name, info.Type)
	}
	v := value{name: info.Name, kind: models.KindTensor, elem: info.Elem, dims: []int64{}}
	n := int64(1)
	for _, dim := range info.Dims {
		d := dim.Value
		if !dim.Fixed() {
			d = open
		}
		v.dims = append(v.dims, d)
		if n *= d; n > sampleElements {
			return v, 0, fmt.Errorf("%w: input %q is too large", errInput, info.Name)
		}
	}
	return v, n, nil
}

// readValue reads a file of test data: a TensorProto, a SequenceProto or an
// OptionalProto, as the type says.
func readValue(path string, t ort.TypeInfo) (v value, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return v, err
	}
	switch t.Kind {
	case models.KindTensor:
		v, err = parseTensor(raw)
	case models.KindSequence:
		v, err = parseSequence(raw)
	case models.KindOptional:
		v, err = parseOptional(raw)
	default:
		err = fmt.Errorf("%s cannot be read", t.Type)
	}
	if err != nil {
		return v, fmt.Errorf("%w: %s: %w", errInput, path, err)
	}
	return v, nil
}

// fields calls f for each field of a message.
func fields(raw []byte, f func(num protowire.Number, typ protowire.Type, field []byte) error) error {
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return protowire.ParseError(n)
		}
		raw = raw[n:]
		if n = protowire.ConsumeFieldValue(num, typ, raw); n < 0 {
			return protowire.ParseError(n)
		}
		field := raw[:n]
		if typ == protowire.BytesType {
			field, _ = protowire.ConsumeBytes(field)
		}
		if err := f(num, typ, field); err != nil {
			return err
		}
		raw = raw[n:]
	}
	return nil
}

func parseSequence(raw []byte) (value, error) {
	v := value{kind: models.KindSequence}
	return v, fields(raw, func(num protowire.Number, _ protowire.Type, field []byte) error {
		switch num {
		case 1:
			v.name = string(field)
		case 3:
			item, err := parseTensor(field)
			v.items = append(v.items, item)
			return err
		case 4, 5, 6, 7:
			return errors.New("a sequence of something else than tensors")
		}
		return nil
	})
}

func parseOptional(raw []byte) (v value, err error) {
	var name string
	err = fields(raw, func(num protowire.Number, _ protowire.Type, field []byte) (err error) {
		switch num {
		case 1:
			name = string(field)
		case 3:
			v, err = parseTensor(field)
		case 5:
			v, err = parseSequence(field)
		case 4, 6, 7:
			err = errors.New("an optional of something else than a tensor or a sequence")
		}
		return err
	})
	v.name = name
	return v, err
}

func parseTensor(raw []byte) (value, error) {
	v := value{kind: models.KindTensor, dims: []int64{}}
	var numbers []uint64
	err := fields(raw, func(num protowire.Number, typ protowire.Type, field []byte) error {
		switch num {
		case 1:
			for _, d := range unpack(nil, typ, field, protowire.VarintType) {
				v.dims = append(v.dims, int64(d))
			}
		case 2:
			n, _ := protowire.ConsumeVarint(field)
			v.elem = models.DataType(n)
		case 4:
			numbers = unpack(numbers, typ, field, protowire.Fixed32Type)
		case 5, 7, 11:
			numbers = unpack(numbers, typ, field, protowire.VarintType)
		case 6:
			v.strings = append(v.strings, append([]byte(nil), field...))
		case 8:
			v.name = string(field)
		case 9:
			v.data = append([]byte(nil), field...)
		case 10:
			numbers = unpack(numbers, typ, field, protowire.Fixed64Type)
		case 13, 14:
			return errors.New("data outside the file")
		}
		return nil
	})
	if err != nil || v.data != nil || v.elem == models.String {
		return v, err
	}
	size := elementBytes(v.elem)
	if v.elem == models.Complex64 || v.elem == models.Complex128 {
		size /= 2 // the two parts are numbers each
	}
	if size == 0 && len(numbers) > 0 {
		return v, fmt.Errorf("numbers of type %s", v.elem)
	}
	for _, n := range numbers {
		v.data = append(v.data, little.AppendUint64(nil, n)[:size]...)
	}
	return v, nil
}

// unpack appends the numbers of a repeated field, packed or one by one.
func unpack(list []uint64, typ protowire.Type, field []byte, item protowire.Type) []uint64 {
	if typ != protowire.BytesType && typ != item {
		return list
	}
	for len(field) > 0 {
		switch {
		case item == protowire.VarintType:
			v, n := protowire.ConsumeVarint(field)
			if n < 0 {
				return list
			}
			list, field = append(list, v), field[n:]
		case item == protowire.Fixed32Type && len(field) >= 4:
			list, field = append(list, uint64(little.Uint32(field))), field[4:]
		case item == protowire.Fixed64Type && len(field) >= 8:
			list, field = append(list, little.Uint64(field)), field[8:]
		default:
			return list
		}
	}
	return list
}

// elementBytes returns the size of an element, 0 if it varies or is below a byte.
func elementBytes(t models.DataType) int {
	switch t {
	case 17, 18, 19, 20: // of 8 bits, which no service has
		return 1
	}
	return t.Bytes()
}

// number returns what reads an element of floating point, nil for other types.
func number(t models.DataType) func([]byte) float64 {
	switch t {
	case models.Float32:
		return func(b []byte) float64 { return float64(math.Float32frombits(little.Uint32(b))) }
	case models.Float64:
		return func(b []byte) float64 { return math.Float64frombits(little.Uint64(b)) }
	case models.BFloat16:
		return func(b []byte) float64 { return float64(math.Float32frombits(uint32(little.Uint16(b)) << 16)) }
	case models.Float16:
		return func(b []byte) float64 {
			bits := little.Uint16(b)
			exponent, fraction := int(bits>>10&0x1f), float64(bits&0x3ff)
			f := math.Ldexp(1024+fraction, exponent-25)
			switch {
			case exponent == 0:
				f = math.Ldexp(fraction, -24)
			case exponent == 0x1f && fraction == 0:
				f = math.Inf(1)
			case exponent == 0x1f:
				f = math.NaN()
			}
			return math.Copysign(f, 1-2*float64(bits>>15))
		}
	}
	return nil
}
