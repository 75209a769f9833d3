package wire

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

// newOutputPair returns both ends of an output arena.
func newOutputPair(t testing.TB, size int64) (*Outputs, *WorkerOutputs) {
	t.Helper()
	outputs, err := NewOutputs(size)
	if err != nil {
		t.Fatal(err)
	}
	arena, err := OpenOutputs(outputs.File().Fd())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		outputs.Close()
		arena.Close()
	})
	return outputs, arena
}

func lease(t testing.TB, a *WorkerOutputs, n int64) (OutputTensor, []byte) {
	t.Helper()
	out, data, err := a.Alloc(models.Uint8, []int64{n}, n)
	if err != nil {
		t.Fatal(err)
	}
	return out, data
}

// A lease that is released twice must not end the one that got its slot.
func TestStaleReleaseDoesNothing(t *testing.T) {
	outputs, arena := newOutputPair(t, 1<<16)
	first, _ := lease(t, arena, 8)
	stale, _, err := outputs.Acquire(&first)
	if err != nil {
		t.Fatal(err)
	}
	stale.Release()
	second, _ := lease(t, arena, 8)
	if second.Slot != first.Slot {
		t.Fatalf("slot %d was not used again but %d", first.Slot, second.Slot)
	}
	if _, _, err := outputs.Acquire(&second); err != nil {
		t.Fatal(err)
	}
	stale.Release()
	if outputs.Leases() != 1 {
		t.Fatal("the stale lease released another one's slot")
	}
}

func TestOutputsRefuseLies(t *testing.T) {
	outputs, arena := newOutputPair(t, 1<<16)
	honest, _ := lease(t, arena, 256)
	l, _, err := outputs.Acquire(&honest)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	lies := map[string]func(*OutputTensor){
		"beyond the end":    func(o *OutputTensor) { o.Offset = 1<<16 - 100 },
		"far beyond":        func(o *OutputTensor) { o.Offset = 1<<63 - 1 },
		"negative offset":   func(o *OutputTensor) { o.Offset = -64 },
		"slot beyond":       func(o *OutputTensor) { o.Slot = MaxSlots },
		"slot taken":        func(o *OutputTensor) { o.Slot = honest.Slot },
		"overlap before":    func(o *OutputTensor) { o.Offset = honest.Offset + 255 },
		"overlap behind":    func(o *OutputTensor) { o.Offset = max(0, honest.Offset-1) },
		"shape too large":   func(o *OutputTensor) { o.Shape = []int64{257} },
		"shape too small":   func(o *OutputTensor) { o.Shape = []int64{255} },
		"shape wraps":       func(o *OutputTensor) { o.Shape = []int64{1 << 32, 1 << 32, 256} },
		"negative shape":    func(o *OutputTensor) { o.Shape = []int64{-16, -16} },
		"type without size": func(o *OutputTensor) { o.Type = models.Undefined },
		"unknown type":      func(o *OutputTensor) { o.Type = 99 },
		"negative bytes":    func(o *OutputTensor) { o.Bytes, o.Shape = -1, []int64{-1} },
	}
	for name, lie := range lies {
		o := OutputTensor{Tensor: models.Tensor{Type: models.Uint8, Shape: []int64{256}, Offset: 4096, Bytes: 256}, Slot: 17}
		lie(&o)
		if _, _, err := outputs.Acquire(&o); !errors.Is(err, ErrBadOutput) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		t     models.DataType
		shape []int64
		bytes int64
		want  bool
	}{
		{models.Float32, nil, 4, true},
		{models.Float32, []int64{2, 3}, 24, true},
		{models.Float32, []int64{2, 3}, 25, false},
		{models.Float32, []int64{0, 1 << 62}, 0, true},
		{models.Float32, []int64{0}, 4, false},
		{models.String, []int64{2}, 8, true},
		{models.String, []int64{2}, 11, true},
		{models.String, []int64{2}, 7, false},
		{models.String, []int64{0}, 0, true},
		{models.Complex128, []int64{2}, 32, true},
	} {
		if got := fits(c.t, c.shape, c.bytes); got != c.want {
			t.Errorf("fits(%s, %v, %d) = %t", c.t, c.shape, c.bytes, got)
		}
	}
}

// Both ends against each other: nothing overlaps, everything comes back.
func TestOutputsProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		outputs, err := NewOutputs(1 << 16)
		if err != nil {
			rt.Fatal(err)
		}
		arena, err := OpenOutputs(outputs.File().Fd())
		if err != nil {
			rt.Fatal(err)
		}
		defer arena.Close()
		defer outputs.Close()
		var live []Lease
		rt.Repeat(map[string]func(*rapid.T){
			"lease": func(t *rapid.T) {
				n := rapid.Int64Range(0, 1<<13).Draw(t, "bytes")
				out, data, err := arena.Alloc(models.Uint8, []int64{n}, n)
				if errors.Is(err, ErrArenaFull) {
					t.Skip()
				}
				clear(data)
				l, _, err := outputs.Acquire(&out)
				if err != nil {
					t.Fatal(err)
				}
				live = append(live, l)
			},
			"abandon": func(t *rapid.T) {
				if out, _, err := arena.Alloc(models.Uint8, nil, 1); err == nil {
					arena.Abandon(out)
				}
			},
			"release": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(live)-1).Draw(t, "lease")
				live[i].Release()
				live = append(live[:i], live[i+1:]...)
			},
			"": func(t *rapid.T) {
				if outputs.Leases() != len(live) {
					t.Fatalf("%d leases, should be %d", outputs.Leases(), len(live))
				}
			},
		})
		for _, l := range live {
			l.Release()
		}
		arena.sweep()
		if arena.space.used != 0 || len(arena.free) != MaxSlots || outputs.Leases() != 0 {
			rt.Fatalf("%d bytes, %d slots and %d leases did not come back", arena.space.used, MaxSlots-len(arena.free), outputs.Leases())
		}
	})
}

func TestOutputSlotsAreBounded(t *testing.T) {
	_, arena := newOutputPair(t, 1<<20)
	var last OutputTensor
	for range MaxSlots {
		last, _ = lease(t, arena, 1)
	}
	if _, _, err := arena.Alloc(models.Uint8, nil, 1); !errors.Is(err, ErrArenaFull) {
		t.Fatalf("one slot too many: %v", err)
	}
	arena.Abandon(last)
	lease(t, arena, 1)
}

// The memory of a lost worker stays until its last output has been read.
func TestOutputsOutliveWorker(t *testing.T) {
	outputs, err := NewOutputs(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	arena, err := OpenOutputs(outputs.File().Fd())
	if err != nil {
		t.Fatal(err)
	}
	out, data := lease(t, arena, 3)
	copy(data, "abc")
	l, got, err := outputs.Acquire(&out)
	if err != nil {
		t.Fatal(err)
	}
	arena.Close()
	outputs.Close()
	outputs.Close()
	if string(got) != "abc" {
		t.Fatalf("got %q", got)
	}
	if _, _, err := outputs.Acquire(&OutputTensor{Tensor: models.Tensor{Type: models.Uint8, Shape: []int64{1}, Offset: 64, Bytes: 1}, Slot: 5}); !errors.Is(err, ErrBadOutput) {
		t.Errorf("Acquire after Close: %v", err)
	}
	l.Release()
	if outputs.Leases() != 0 {
		t.Fatal("still leased")
	}
}

func TestStopWordsAreApart(t *testing.T) {
	outputs, arena := newOutputPair(t, 1<<12)
	for word := range uint32(StopWords) {
		outputs.Stop(word)
		for other := range uint32(StopWords) {
			if got := atomic.LoadUint32(arena.control.stop(other)); got != 0 != (other == word) {
				t.Fatalf("stop %d: word %d is %d", word, other, got)
			}
		}
		outputs.ClearStop(word)
	}
	if arena.control.stop(StopWords-1) == arena.control.slot(0) || stopsOffset+4*StopWords > slotsOffset {
		t.Fatal("stop words run into the slots")
	}
}

// A worker can neither change the inputs nor take the memory away. On a GPU it must be
// able to change them, or the driver may refuse to pin them.
func TestMemoryIsSealed(t *testing.T) {
	pinned, err := NewInputArena(1<<16, true)
	if err != nil {
		t.Fatal(err)
	}
	defer pinned.Close()
	memory, err := MapArena(pinned.File().Fd(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(memory)
	offset, data, err := pinned.Alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	if memory[offset] = 3; data[0] != 3 {
		t.Error("the mapping of a worker on a GPU is a copy")
	}
	inputs, err := NewInputArena(1<<16, false)
	if err != nil {
		t.Fatal(err)
	}
	defer inputs.Close()
	outputs, _ := newOutputPair(t, 1<<16)
	if _, err := mapMemory(inputs.File().Fd(), 4096, unix.PROT_READ|unix.PROT_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("writable mapping of inputs: %v", err)
	}
	for _, file := range []*os.File{inputs.File(), outputs.File()} {
		if err := file.Truncate(0); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncate %s: %v", file.Name(), err)
		}
		if err := file.Truncate(1 << 30); !errors.Is(err, unix.EPERM) {
			t.Errorf("grow %s: %v", file.Name(), err)
		}
	}
}

// Outputs are protected from behind the control page on, so that is whole pages of
// every kernel: some have pages of 64 KiB.
func TestControlPageIsWholePages(t *testing.T) {
	if controlBytes%(64<<10) != 0 || slotsOffset+4*MaxSlots > controlBytes {
		t.Errorf("the control page has %d bytes", controlBytes)
	}
}

func TestOpenOutputsRefusesSmallMemory(t *testing.T) {
	file, mapped, err := newMemory("small", 0, controlBytes, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	defer Unmap(mapped)
	if _, err := OpenOutputs(file.Fd()); !errors.Is(err, ErrArenaSize) {
		t.Error(err)
	}
}

// TestOutputsTrim gives pages back once nobody reads what is in them.
func TestOutputsTrim(t *testing.T) {
	const size = 1 << 20
	outputs, arena := newOutputPair(t, size)
	pages := func() int64 {
		t.Helper()
		var stat unix.Stat_t
		if err := unix.Fstat(int(outputs.File().Fd()), &stat); err != nil {
			t.Fatal(err)
		}
		return stat.Blocks * 512
	}
	out, data := lease(t, arena, size)
	for i := range data {
		data[i] = 7
	}
	l, got, err := outputs.Acquire(&out)
	if err != nil {
		t.Fatal(err)
	}
	for _, read := range []bool{true, false} {
		if !read {
			l.Release()
		}
		if err := arena.Trim(); err != nil {
			t.Fatal(err)
		}
		if kept := pages() >= size; kept != read {
			t.Errorf("%d bytes are there; being read: %t", pages(), read)
		}
		if read && got[size-1] != 7 {
			t.Error("an output that is read has changed")
		}
	}
	if out, data = lease(t, arena, size); data[5] != 0 {
		t.Error("what was given back is still there")
	}
	arena.Abandon(out)
}
