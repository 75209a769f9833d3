package wire

import (
	"bytes"
	"errors"
	"testing"

	"github.com/overlapd/overlapd/models"
)

func newLocal(t *testing.T, size int64) *LocalOutputs {
	t.Helper()
	l, err := NewLocalOutputs(size)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLocalOutputs(t *testing.T) {
	l := newLocal(t, 1<<16)
	for round := range 3 * MaxSlots { // slots and memory are used again
		out, err := l.Alloc(models.Float32, 3, 4)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		lease, data, err := l.Outputs().Acquire(&out)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if !bytes.Equal(data, make([]byte, 3*4*4)) {
			t.Fatalf("round %d: not zeros: %v", round, data)
		}
		lease.Release()
	}
	if n := l.Outputs().Leases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestLocalOutputsOutliveTheArena(t *testing.T) {
	l := newLocal(t, 1<<12)
	out, err := l.Alloc(models.Int64, 2)
	if err != nil {
		t.Fatal(err)
	}
	lease, data, err := l.Outputs().Acquire(&out)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, make([]byte, 16)) || l.Outputs().Leases() != 1 {
		t.Errorf("after Close: %v, %d leases", data, l.Outputs().Leases())
	}
	lease.Release()
	if n := l.Outputs().Leases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

func TestLocalOutputsRefuse(t *testing.T) {
	if _, err := NewLocalOutputs(0); !errors.Is(err, ErrArenaSize) {
		t.Errorf("no bytes: %v", err)
	}
	l := newLocal(t, 1<<12)
	defer l.Close()
	for name, c := range map[string]struct {
		typ   models.DataType
		shape []int64
		want  error
	}{
		"too large":  {models.Float32, []int64{1 << 12}, ErrArenaFull},
		"wraps":      {models.Float32, []int64{1 << 40, 1 << 40}, ErrBadOutput},
		"negative":   {models.Float32, []int64{-1}, ErrBadOutput},
		"strings":    {models.String, []int64{1}, ErrBadOutput},
		"undefined":  {models.Undefined, []int64{1}, ErrBadOutput},
		"wraps to 0": {models.Float32, []int64{1 << 31, 1 << 31}, ErrBadOutput},
	} {
		if _, err := l.Alloc(c.typ, c.shape...); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
