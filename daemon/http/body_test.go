package http

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
)

// What query.Body promises.
const (
	firstBytes = 16 << 10
	keptBytes  = 4 << 20
)

// unserved returns an endpoint that listens nowhere.
func unserved(t *testing.T, change func(*config.Limits)) *Endpoint {
	t.Helper()
	l := testLimits()
	if change != nil {
		change(&l)
	}
	e := endpointOf(t, newFake(t), l, nil)
	t.Cleanup(func() {
		if err := e.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if n := e.bodies.memory.Used(); n != 0 {
			t.Errorf("%d bytes are accounted to nobody", n)
		}
	})
	return e
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	source := rand.NewChaCha8([32]byte{1})
	source.Read(b)
	return b
}

// A body is what was sent, however its bytes arrive.
func TestFill(t *testing.T) {
	e := unserved(t, func(l *config.Limits) { l.RequestBytes = 3<<20 + 1 })
	for _, size := range []int{0, 1, firstBytes - 1, firstBytes, firstBytes + 1, 3<<20 + 1} {
		want := randomBytes(size)
		for name, arrive := range map[string]func(io.Reader) io.Reader{
			"at once":           func(r io.Reader) io.Reader { return r },
			"by halves":         iotest.HalfReader,
			"end with the data": iotest.DataErrReader,
		} {
			for _, announced := range []int64{int64(size), -1} {
				b, err := e.bodies.fill(e.bodies.memory, arrive(bytes.NewReader(want)), announced)
				if err != nil {
					t.Errorf("%d bytes %s, announced %d: %v", size, name, announced, err)
					continue
				}
				if !bytes.Equal(b.Bytes, want) {
					t.Errorf("%d bytes %s, announced %d: %d others came", size, name, announced, len(b.Bytes))
				}
				if held := e.bodies.memory.Used(); held != int64(cap(b.Bytes)) {
					t.Errorf("%d bytes are accounted for a buffer of %d", held, cap(b.Bytes))
				}
				b.Release()
			}
		}
	}
}

func TestFillRefuses(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		r         io.Reader
		announced int64
		memory    int64
		reason    string
		message   string
	}{
		"less than announced": {strings.NewReader("abc"), 4, 1 << 20, query.ReasonInvalid, "truncated"},
		"over the limit":      {bytes.NewReader(make([]byte, 101)), -1, 1 << 20, query.ReasonTooLarge, "limits.request_bytes (100)"},
		"endless":             {endless('x'), -1, 1 << 20, query.ReasonTooLarge, "limits.request_bytes (100)"},
		"broken":              {io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken)), -1, 1 << 20, query.ReasonInvalid, "truncated"},
		"slow":                {io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(os.ErrDeadlineExceeded)), 50, 1 << 20, query.ReasonTimeout, "in time"},
		"no memory":           {strings.NewReader("abc"), 50, 49, query.ReasonNoMemory, "limits.memory_bytes"},
	} {
		e := unserved(t, func(l *config.Limits) { l.RequestBytes, l.MemoryBytes = 100, tt.memory })
		b, err := e.bodies.fill(e.bodies.memory, tt.r, tt.announced)
		if b != nil || err == nil || err.Reason != tt.reason || !strings.Contains(err.Message, tt.message) {
			t.Errorf("%s: %v with error %v", name, b, err)
		}
		if held := e.bodies.memory.Used(); held != 0 {
			t.Errorf("%s: %d bytes are still accounted", name, held)
		}
	}
}

// endless is a reader of one byte without end.
type endless byte

func (r endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r)
	}
	return len(p), nil
}

// readerFunc calls a function for each Read.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// What is announced takes no memory before it comes.
func TestFillGrowsWithWhatComes(t *testing.T) {
	e := unserved(t, nil)
	announced := e.limits.RequestBytes
	came := int64(0)
	b, err := e.bodies.fill(e.bodies.memory, readerFunc(func(p []byte) (int, error) {
		if held := e.bodies.memory.Used(); held > max(4*came, firstBytes) {
			t.Errorf("%d bytes are held when %d have come", held, came)
		}
		if came > 5<<20 {
			return 0, io.ErrUnexpectedEOF
		}
		n := min(len(p), 100_000)
		came += int64(n)
		return n, nil
	}), announced)
	if b != nil || err != errBroken {
		t.Errorf("a body of %d bytes: %v, %v", came, b, err)
	}
}

func TestLargeBuffersAreNotKept(t *testing.T) {
	e := unserved(t, nil)
	for _, size := range []int{100, keptBytes, keptBytes + 1} {
		b, err := e.bodies.fill(e.bodies.memory, bytes.NewReader(make([]byte, size)), int64(size))
		if err != nil {
			t.Fatal(err)
		}
		large := cap(b.Bytes) > keptBytes
		b.Release()
		if kept := b.Bytes != nil; kept == large {
			t.Errorf("a buffer for %d bytes: kept %t", size, kept)
		}
	}
}

// A short body is not refused because the buffer that is at hand is a large
// one, for which there is no memory.
func TestShortBodyInALargeBuffer(t *testing.T) {
	e := unserved(t, func(l *config.Limits) { l.RequestBytes, l.MemoryBytes = 100, 1000 })
	for range 10 { // the pool may throw one away
		large := e.bodies.memory.Body()
		large.Bytes = make([]byte, 0, 1001)
		large.Release()
	}
	b, err := e.bodies.fill(e.bodies.memory, strings.NewReader("abc"), 3)
	if err != nil {
		t.Fatal(err)
	}
	if held := e.bodies.memory.Used(); string(b.Bytes) != "abc" || held != int64(cap(b.Bytes)) || held > 100 {
		t.Errorf("%q in %d bytes, %d accounted", b.Bytes, cap(b.Bytes), held)
	}
	b.Release()
}
