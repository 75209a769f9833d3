package zoo

import (
	"fmt"
	"io"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// What every file of the zoo declares.
const (
	irVersion    = 8
	opsetVersion = 17
	producer     = "overlapd"
)

// recipeVersion is written into every file. It must be raised whenever a file
// of the same name and seed gets other bytes.
const recipeVersion = 1

// Keys of metadata_props.
const (
	keyName   = "overlapd.zoo"
	keyRecipe = "overlapd.recipe"
	keySeed   = "overlapd.seed"
)

// chunkBytes is how much of a tensor is made at a time. It must be a multiple
// of every element size.
const chunkBytes = 256 << 10

// layout is a model file of which all but the weights is known. Fields stand
// in an order of our own, which protobuf allows: the description comes first
// and the weights last.
type layout struct {
	seed    uint64
	head    []byte // all before the first tensor
	tensors []placedTensor
	size    int64 // of the whole file
}

type placedTensor struct {
	tensor
	head []byte // its message up to the raw data
}

// encode lays out the file of g. Nothing in the size depends on the seed.
func encode(g *graph, seed uint64) *layout {
	l := &layout{seed: seed}
	body := g.appendHead(nil)
	graphBytes := int64(len(body))
	for _, t := range g.tensors {
		head := t.appendHead(nil)
		l.tensors = append(l.tensors, placedTensor{t, head})
		graphBytes += int64(len(head)) + t.bytes()
	}

	head := appendUint(nil, 1, irVersion)
	head = appendString(head, 2, producer)
	head = appendMessage(head, 8, appendUint(nil, 2, opsetVersion))
	head = appendProperty(head, keyName, g.name)
	head = appendProperty(head, keyRecipe, strconv.Itoa(recipeVersion))
	head = appendProperty(head, keySeed, fmt.Sprintf("%016x", seed))
	head = protowire.AppendTag(head, 7, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(graphBytes))
	l.size = int64(len(head)) + graphBytes
	l.head = append(head, body...)
	return l
}

// write writes the file. progress, if not nil, is told after each step how
// many bytes of the file are written.
func (l *layout) write(w io.Writer, progress func(done int64)) error {
	out := counter{w: w, progress: progress}
	out.write(l.head)
	chunk := make([]byte, chunkBytes)
	for i := range l.tensors {
		t := &l.tensors[i]
		out.write(t.head)
		s := newStream(l.seed, t.name)
		size := int64(t.elem.Bytes())
		for done, total := int64(0), t.bytes(); done < total && out.err == nil; {
			part := chunk[:min(chunkBytes, total-done)]
			t.encode(part, done/size, s)
			out.write(part)
			done += int64(len(part))
		}
	}
	return out.err
}

// counter writes until the first error.
type counter struct {
	w        io.Writer
	progress func(done int64)
	done     int64
	err      error
}

func (c *counter) write(b []byte) {
	if c.err != nil {
		return
	}
	n, err := c.w.Write(b)
	c.done += int64(n)
	c.err = err
	if err == nil && c.progress != nil {
		c.progress(c.done)
	}
}
