package ort

import (
	"errors"
	"testing"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openLibrary skips the test where there is no library.
func openLibrary(t testing.TB) *Library {
	t.Helper()
	path, err := Find()
	if errors.Is(err, ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// openEnv returns an Env that is closed, and checked for leaks, after the test.
func openEnv(t testing.TB, o EnvOptions) *Env {
	t.Helper()
	e, err := openLibrary(t).NewEnv(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
			e.release() // so that only this test fails
		}
	})
	return e
}

type closer interface{ Close() error }

func closeAfter(t testing.TB, c closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func newSession(t testing.TB, e *Env, m model) *Session {
	t.Helper()
	return newSessionWith(t, e, m, SessionOptions{})
}

func newSessionWith(t testing.TB, e *Env, m model, o SessionOptions) *Session {
	t.Helper()
	s, err := e.NewSession(m.encode(), o)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, s)
	return s
}

// mapped returns zeroed memory that the garbage collector does not move.
func mapped(t testing.TB, bytes int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	return b
}

// floats returns a tensor in mapped memory, and its elements.
func floats(t testing.TB, e *Env, shape []int64, values ...float32) (*Value, []float32) {
	t.Helper()
	n := elements(shape)
	data := mapped(t, 4*n+1)[:4*n] // an empty mapping is an error
	v, err := e.TensorOn(data, models.Float32, shape)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, v)
	slots := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), n)
	copy(slots, values)
	return v, slots
}

// values returns the elements of a float tensor, copied.
func values(t testing.TB, v *Value) []float32 {
	t.Helper()
	if v.Elem() != models.Float32 {
		t.Fatalf("a value of %s, not of float32", v.Elem())
	}
	b, err := v.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return append([]float32{}, unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)...)
}
