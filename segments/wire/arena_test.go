package wire

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// arenaModel is what a test knows of an allocator: the blocks it was given.
type arenaModel map[int64]int64 // offset to bytes

func (m arenaModel) check(t interface{ Fatalf(string, ...any) }, a *allocator) {
	offsets := make([]int64, 0, len(m))
	for offset := range m {
		offsets = append(offsets, offset)
	}
	slices.Sort(offsets)
	var end, used int64
	for _, offset := range offsets {
		if offset%ArenaAlign != 0 || offset < end {
			t.Fatalf("block at %d overlaps the one before, which ends at %d, or is not aligned", offset, end)
		}
		end = offset + m[offset]
		used += alignUp(max(m[offset], 1), ArenaAlign)
	}
	if end > a.bytes || a.used != used {
		t.Fatalf("blocks end at %d of %d; %d bytes in use, should be %d", end, a.bytes, a.used, used)
	}
}

func TestAllocatorProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := ArenaAlign * rapid.Int64Range(1, 1<<14).Draw(t, "units")
		a, model := newAllocator(size), arenaModel{}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				n := rapid.Int64Range(0, size/rapid.Int64Range(1, 64).Draw(t, "share")).Draw(t, "bytes")
				offset, err := a.alloc(n)
				if errors.Is(err, ErrArenaFull) {
					t.Skip()
				}
				if _, taken := model[offset]; taken {
					t.Fatalf("%d given twice", offset)
				}
				model[offset] = n
			},
			"free": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip()
				}
				offset := rapid.SampledFrom(sortedKeys(model)).Draw(t, "offset")
				if err := a.release(offset); err != nil {
					t.Fatalf("%v", err)
				}
				delete(model, offset)
			},
			"": func(t *rapid.T) { model.check(t, a) },
		})
		for offset := range model {
			if err := a.release(offset); err != nil {
				t.Fatalf("%v", err)
			}
		}
		if offset, err := a.alloc(size); err != nil || offset != 0 {
			t.Fatalf("after all was freed: %d bytes at %d, %v", size, offset, err)
		}
	})
}

func sortedKeys(m arenaModel) []int64 {
	keys := make([]int64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func TestAllocatorRefuses(t *testing.T) {
	a := newAllocator(1 << 12)
	for _, n := range []int64{-1, 1<<12 + 1, 1 << 62} {
		if _, err := a.alloc(n); !errors.Is(err, ErrArenaFull) {
			t.Errorf("alloc(%d): %v", n, err)
		}
	}
	offset, err := a.alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []int64{offset + 1, offset + 64, -1, 1 << 40} {
		if err := a.release(wrong); !errors.Is(err, ErrNotAllocated) {
			t.Errorf("release(%d): %v", wrong, err)
		}
	}
	if err := errors.Join(a.release(offset)); err != nil {
		t.Fatal(err)
	}
	if err := a.release(offset); !errors.Is(err, ErrNotAllocated) {
		t.Errorf("second release: %v", err)
	}
}

func TestInputArenaSizes(t *testing.T) {
	for _, bytes := range []int64{0, -1, MaxArenaBytes + 1} {
		if _, err := NewInputArena(bytes, false); !errors.Is(err, ErrArenaSize) {
			t.Errorf("NewInputArena(%d): %v", bytes, err)
		}
		if _, err := NewOutputs(bytes); !errors.Is(err, ErrArenaSize) {
			t.Errorf("NewOutputs(%d): %v", bytes, err)
		}
	}
}

func TestInputArenaConcurrent(t *testing.T) {
	a, err := NewInputArena(1<<20, false)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for worker := range byte(8) {
		wg.Go(func() {
			for i := range int64(500) {
				offset, data, err := a.Alloc(i * 7 % 4096)
				if err != nil {
					t.Error(err)
					return
				}
				for j := range data {
					data[j] = worker
				}
				for _, got := range data {
					if got != worker {
						t.Error("another one wrote here")
						return
					}
				}
				if err := a.Free(offset); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if leaked, err := a.Close(); leaked != 0 || err != nil {
		t.Fatalf("Close: %d leaked, %v", leaked, err)
	}
}

func TestInputArenaReportsLeaks(t *testing.T) {
	a, err := NewInputArena(1<<16, false)
	if err != nil {
		t.Fatal(err)
	}
	offset, data, err := a.Alloc(10)
	if err != nil {
		t.Fatal(err)
	}
	if leaked, _ := a.Close(); leaked != 1 {
		t.Fatalf("Close: %d leaked", leaked)
	}
	data[9] = 1 // must not fault: the memory stays until it is freed
	if _, _, err := a.Alloc(1); !errors.Is(err, ErrArenaFull) {
		t.Errorf("Alloc after Close: %v", err)
	}
	if err := a.Free(offset); err != nil {
		t.Fatal(err)
	}
}
