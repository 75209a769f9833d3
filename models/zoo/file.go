package zoo

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/models"
)

// The header that every file of the zoo declares.
const (
	irVersion    = 8
	opsetVersion = 17
	producer     = "overlapd"
)

// recipeVersion is written into every file. Raise it whenever a file of the same name and seed
// would get different bytes, so that existing files are built again.
const recipeVersion = 1

// Keys of metadata_props.
const (
	keyName   = "overlapd.zoo"
	keyRecipe = "overlapd.recipe"
	keySeed   = "overlapd.seed"
)

// chunkBytes is how much of a tensor is generated at a time. It must be a multiple of every
// element size.
const chunkBytes = 256 << 10

// layout is a model file that is complete except for the weights. Protobuf allows fields in any
// order; here the description comes first and the weights last, so that matches can identify
// a file by its head.
type layout struct {
	seed uint64
	// head is everything before the first tensor.
	head    []byte
	tensors []placedTensor
	// size is the size of the whole file.
	size int64
}

// placedTensor is a tensor with its encoded header.
type placedTensor struct {
	tensor
	// head is the tensor's message up to the raw data.
	head []byte
}

// encode lays out the file of g. The size does not depend on the seed.
func encode(g *graph, seed uint64) *layout {
	l := &layout{seed: seed}
	body := g.appendHead(nil)
	graphBytes := int64(len(body))
	for _, t := range g.tensors {
		head := t.appendHead(nil)
		l.tensors = append(l.tensors, placedTensor{t, head})
		graphBytes += int64(len(head)) + t.bytes()
	}

	head := models.AppendInt(nil, 1, irVersion)
	head = models.AppendString(head, 2, producer)
	head = models.AppendField(head, 8, models.AppendInt(nil, 2, opsetVersion))
	head = appendProperty(head, keyName, g.name)
	head = appendProperty(head, keyRecipe, strconv.Itoa(recipeVersion))
	head = appendProperty(head, keySeed, fmt.Sprintf("%016x", seed))
	head = protowire.AppendTag(head, 7, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(graphBytes))
	l.size = int64(len(head)) + graphBytes
	l.head = append(head, body...)
	return l
}

// write writes the file to w. If progress is not nil, it is called after each write with the
// bytes written so far and in total.
func (l *layout) write(w io.Writer, progress func(done, total int64)) error {
	var done int64
	var err error
	put := func(b []byte) {
		if err != nil {
			return
		}
		if _, err = w.Write(b); err != nil {
			return
		}
		if done += int64(len(b)); progress != nil {
			progress(done, l.size)
		}
	}
	put(l.head)
	chunk := make([]byte, chunkBytes)
	for i := range l.tensors {
		t := &l.tensors[i]
		put(t.head)
		s := newStream(l.seed, t.name)
		size := int64(t.elem.Bytes())
		for at, total := int64(0), t.bytes(); at < total && err == nil; {
			part := chunk[:min(chunkBytes, total-at)]
			t.encode(part, at/size, s)
			put(part)
			at += int64(len(part))
		}
	}
	return err
}

// Build ensures that dir contains the file of the named model with the weights of seed, and
// returns its path. It creates dir if needed and replaces the file atomically. A file that
// already matches is left alone. If progress is not nil, it is called with the bytes written so
// far and in total. A model for text is in a folder of its own, with its tokenizer.
func Build(name, dir string, seed uint64, progress func(done, total int64)) (string, error) {
	e, ok := Lookup(name)
	if !ok {
		return "", fmt.Errorf("%w: %q", errUnknown, name)
	}
	path, err := filepath.Join(dir, name+".onnx"), error(nil)
	if e.beside != nil {
		path = filepath.Join(dir, name, modelFile)
		err = writeBeside(filepath.Join(dir, name), e.beside())
	}
	l := encode(e.graph(), seed)
	if err == nil && l.matches(path) {
		return path, nil
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = textfile.Replace(path, func(w io.Writer) error { return l.write(w, progress) })
	}
	if err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	return path, nil
}

// matches reports whether the file at path is the one that l describes. It compares the size
// and the head but does not read the weights. That is enough, because files are replaced
// atomically and any change of the weights changes the recipe version in the head.
func (l *layout) matches(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() != l.size {
		return false
	}
	head := make([]byte, len(l.head))
	_, err = io.ReadFull(f, head)
	return err == nil && bytes.Equal(head, l.head)
}

// The functions below append ONNX messages to b. Field numbers are those of onnx.proto.

// appendHead appends the fields of a GraphProto except for its initializers.
func (g *graph) appendHead(b []byte) []byte {
	for _, n := range g.nodes {
		b = models.AppendField(b, 1, n.append(nil))
	}
	b = models.AppendString(b, 2, g.name)
	for _, in := range g.inputs {
		b = models.AppendField(b, 11, models.AppendValueInfo(nil, in.Name, in.Type))
	}
	for _, out := range g.outputs {
		b = models.AppendField(b, 12, models.AppendValueInfo(nil, out.Name, out.Type))
	}
	return b
}

// append appends the fields of a NodeProto.
func (n *node) append(b []byte) []byte {
	for _, name := range n.inputs {
		b = models.AppendString(b, 1, name)
	}
	for _, name := range n.outputs {
		b = models.AppendString(b, 2, name)
	}
	b = models.AppendString(b, 3, n.name)
	b = models.AppendString(b, 4, n.op)
	for _, a := range n.attrs {
		b = models.AppendField(b, 5, a)
	}
	return b
}

// attribute is a serialized AttributeProto, a constant parameter of a node.
type attribute []byte

// The attribute types that the zoo uses (AttributeProto.AttributeType).
const (
	kindFloat    = 1
	kindInteger  = 2
	kindIntegers = 7
)

// float, integer and integers return attributes of the three types.
func float(name string, value float32) attribute {
	b := protowire.AppendTag(models.AppendString(nil, 1, name), 2, protowire.Fixed32Type)
	return models.AppendInt(protowire.AppendFixed32(b, math.Float32bits(value)), 20, kindFloat)
}

func integer(name string, value int64) attribute {
	return models.AppendInt(models.AppendInt(models.AppendString(nil, 1, name), 3, value), 20, kindInteger)
}

func integers(name string, values ...int64) attribute {
	b := models.AppendString(nil, 1, name)
	for _, v := range values {
		b = models.AppendInt(b, 8, v)
	}
	return models.AppendInt(b, 20, kindIntegers)
}

// appendHead appends t as an initializer of a graph, except for the raw data, which must
// follow.
func (t *tensor) appendHead(b []byte) []byte {
	var body []byte
	for _, d := range t.dims {
		body = models.AppendInt(body, 1, d)
	}
	body = models.AppendInt(body, 2, int64(t.elem))
	body = models.AppendString(body, 8, t.name)
	body = protowire.AppendTag(body, 9, protowire.BytesType)
	body = protowire.AppendVarint(body, uint64(t.bytes()))
	// The lengths count the raw data although they are not appended here.

	b = protowire.AppendTag(b, 5, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(int64(len(body))+t.bytes()))
	return append(b, body...)
}

func appendProperty(b []byte, key, value string) []byte {
	return models.AppendField(b, 14, models.AppendString(models.AppendString(nil, 1, key), 2, value))
}
