package wire

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

// Values lie behind each other, aligned and inside, or the reason is given why not.
func TestPlace(t *testing.T) {
	const limit = 1 << 12
	memory := make([]byte, limit)
	rapid.Check(t, func(t *rapid.T) {
		var values []models.Tensor
		for range rapid.IntRange(0, 8).Draw(t, "values") {
			v := models.Tensor{Type: models.Float32, Shape: []int64{rapid.Int64Range(0, 300).Draw(t, "elements")}, Offset: rapid.Int64().Draw(t, "offset")}
			v.Bytes = 4 * v.Shape[0]
			values = append(values, v)
		}
		bytes, err := Place(values, limit)
		if err != nil {
			var sum int64
			for _, v := range values {
				sum += alignUp(v.Bytes, ArenaAlign)
			}
			if !errors.Is(err, ErrArenaFull) || sum <= limit {
				t.Fatalf("%d bytes: %v", sum, err)
			}
			return
		}
		end := int64(0)
		for _, v := range values {
			if v.Offset%ArenaAlign != 0 || v.Offset < end || !Find(&v, memory) {
				t.Fatalf("%+v behind %d", v, end)
			}
			end = v.Offset + v.Bytes
		}
		if bytes < end || bytes > limit {
			t.Fatalf("%d bytes, the last value ends at %d", bytes, end)
		}
	})
}

func TestPlaceRefusesLies(t *testing.T) {
	for name, c := range map[string]struct {
		value models.Tensor
		want  error
	}{
		"too few bytes":     {models.Tensor{Type: models.Float32, Shape: []int64{2}, Bytes: 7}, ErrMessage},
		"too many bytes":    {models.Tensor{Type: models.Float32, Shape: []int64{2}, Bytes: 9}, ErrMessage},
		"no such type":      {models.Tensor{Type: 99, Shape: []int64{1}, Bytes: 1}, ErrMessage},
		"strings":           {models.Tensor{Type: models.String, Shape: []int64{2}, Bytes: 7}, ErrMessage},
		"an endless tensor": {models.Tensor{Type: models.Float32, Shape: slices.Repeat([]int64{1 << 62}, 4), Bytes: 4}, ErrMessage},
		"bytes of nothing":  {models.Tensor{Type: models.Float32, Shape: []int64{0}, Bytes: 4}, ErrMessage},
		"too large":         {models.Tensor{Type: models.Uint8, Shape: []int64{1 << 50}, Bytes: 1 << 50}, ErrArenaFull},
	} {
		values := []models.Tensor{{Type: models.Uint8, Shape: []int64{3}, Bytes: 3}, c.value}
		if _, err := Place(values, 1<<20); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// Workers see what others write in the memory for moves; nobody can shrink it.
func TestMoveArena(t *testing.T) {
	a, err := NewMoveArena(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	one, err := MapArena(a.File().Fd(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(one)
	other, err := MapArena(a.File().Fd(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(other)
	one[77] = 7
	if other[77] != 7 || int64(len(one)) != a.Bytes() {
		t.Errorf("%d, %d bytes", other[77], len(one))
	}
	if err := a.File().Truncate(0); !errors.Is(err, unix.EPERM) {
		t.Errorf("truncated: %v", err)
	}
}
