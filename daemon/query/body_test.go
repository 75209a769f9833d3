package query

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
)

// However much some connections hold, all together and those of one address, each of the
// others has what is reserved for it, and those of other addresses have more.
func TestSharesLeaveMemoryToOthers(t *testing.T) {
	const limit, piece = 1 << 30, 1 << 10
	memory, places := NewBudget(limit), NewPlaces(1024)
	share := func(a net.Addr) *Budget { return places.Take(a).Share(memory) }
	var all []*Budget
	fill := func(connections int, a net.Addr) {
		for range connections {
			b := share(a)
			all = append(all, b)
			for b.Take(piece) {
			}
		}
	}
	even := int64(limit / reservedShare / (1024 + sparePlaces))
	fill(100, from("10.0.0.1"))
	if used := memory.Used(); used < limit/2-piece || used > limit/2+100*even {
		t.Errorf("one address holds %d bytes", used)
	}
	if b := share(from("10.0.0.2")); !b.Take(limit / 8) {
		t.Error("another address has no eighth")
	} else {
		b.Give(limit / 8)
	}
	local := from("127.0.0.1")
	fill(500, local)
	if b := share(local); b.Take(even + 1) {
		t.Error("a connection has more than is reserved for it when the rest is taken")
	} else if !b.Take(even) {
		t.Error("a connection has not what is reserved for it")
	} else {
		b.Give(even)
	}
	if memory.Used() > limit {
		t.Errorf("%d bytes are taken", memory.Used())
	}
	for _, b := range all {
		b.Give(b.Used())
	}
	if used := memory.Used(); used != 0 {
		t.Errorf("%d bytes are still taken", used)
	}
	one := share(local)
	if !one.Take(limit / 2) {
		t.Error("one connection alone has not half")
	}
	one.Give(limit / 2)
}

// What a body announces takes no memory.
func TestAnnouncedTakesNoMemory(t *testing.T) {
	memory := NewBudget(1 << 20)
	b := memory.Body()
	err := b.Fill(io.MultiReader(bytes.NewReader(make([]byte, 5)), readerFunc(func([]byte) (int, error) {
		if used := memory.Used(); used > 16<<10 {
			t.Errorf("5 bytes take %d", used)
		}
		return 0, io.EOF
	})), 1<<20, 1<<20)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	b.Release()
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
