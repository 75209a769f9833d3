package zoo

import (
	"bytes"
	"errors"
	"testing"
)

// failing accepts so many bytes and then fails.
type failing struct{ left int }

var errFull = errors.New("full")

func (f *failing) Write(b []byte) (int, error) {
	if len(b) > f.left {
		n := f.left
		f.left = 0
		return n, errFull
	}
	f.left -= len(b)
	return len(b), nil
}

func TestWriteStopsAtError(t *testing.T) {
	l := encode(lookup(t, "tiny_mlp").graph(), 1)
	for room := range int(l.size) {
		var last int64
		err := l.write(&failing{room}, func(done, _ int64) { last = done })
		if !errors.Is(err, errFull) {
			t.Fatalf("room for %d bytes: got %v", room, err)
		}
		if last > int64(room) {
			t.Fatalf("room for %d bytes: %d reported", room, last)
		}
	}
	if err := l.write(&failing{int(l.size)}, nil); err != nil {
		t.Error(err)
	}
}

// A tensor must not depend on the chunks in which it is made.
func TestChunks(t *testing.T) {
	g := &graph{name: "long", elem: 1}
	g.weight("w", around(0, 1), 3, chunkBytes/4)
	l := encode(g, 5)
	var file bytes.Buffer
	if err := l.write(&file, nil); err != nil {
		t.Fatal(err)
	}
	whole := make([]byte, g.tensors[0].bytes())
	g.tensors[0].encode(whole, 0, newStream(5, "w"))
	if !bytes.HasSuffix(file.Bytes(), whole) {
		t.Error("a tensor of three chunks differs from the same made at once")
	}
	if int64(file.Len()) != l.size {
		t.Errorf("%d bytes, want %d", file.Len(), l.size)
	}
}
