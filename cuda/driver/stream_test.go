package driver

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/internal/fakes/fakedriver"
)

func TestStreamErrors(t *testing.T) {
	c := openContext(t)
	failNext(t, fakedriver.CallStreamCreate, OutOfMemory)
	if _, err := c.NewStream(); !errors.Is(err, OutOfMemory) {
		t.Errorf("NewStream: %v", err)
	}
	s := openStream(t, c)
	failNext(t, fakedriver.CallStreamDestroy, 700)
	if err := s.Close(); !errors.Is(err, Result(700)) {
		t.Errorf("Close: %v", err)
	}
	page[fakedriver.Sticky] = 0
}

// TestCopiesWait checks that the result of a copy exists after the synchronization and not
// before. Tests of packages that use the fake driver rely on that.
func TestCopiesWait(t *testing.T) {
	c := openContext(t)
	s, a := openStream(t, c), alloc(t, c, 64)
	src, dst := hostMemory(t, 64), hostMemory(t, 64)
	copy(src, "the bytes")
	if err := errors.Join(s.CopyIn(a, src), s.CopyOut(dst, a)); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(src, dst) || page[fakedriver.Pending] != 2 {
		t.Errorf("%q before the synchronization, %d copies pending", dst, page[fakedriver.Pending])
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(src, dst) {
		t.Errorf("%q after the synchronization, expected %q", dst, src)
	}
}

func TestEmptyCopies(t *testing.T) {
	c := openContext(t)
	s := openStream(t, c)
	if err := errors.Join(s.CopyIn(0, nil), s.CopyOut(nil, 0)); err != nil {
		t.Error(err)
	}
}

func TestCopyErrors(t *testing.T) {
	c := openContext(t)
	s, a := openStream(t, c), alloc(t, c, 8)
	memory := hostMemory(t, 8)
	for call, f := range map[int]func() error{
		fakedriver.CallCopyIn:     func() error { return s.CopyIn(a, memory) },
		fakedriver.CallCopyOut:    func() error { return s.CopyOut(memory, a) },
		fakedriver.CallStreamSync: s.Sync,
	} {
		failNext(t, call, 719)
		if err := f(); !errors.Is(err, Result(719)) {
			t.Errorf("call %d: %v", call, err)
		}
		page[fakedriver.Sticky] = 0
	}
	if err := s.CopyIn(a+1<<30, memory); !errors.Is(err, InvalidValue) {
		t.Errorf("copy to nowhere: %v", err)
	}
	page[fakedriver.Faults] = 0
}

func TestEvents(t *testing.T) {
	c := openContext(t)
	s, a := openStream(t, c), alloc(t, c, 8)
	first, second := openEvent(t, c), openEvent(t, c)
	if _, err := second.Since(first); err == nil {
		t.Error("a time between events that were never recorded")
	}
	dst := hostMemory(t, 8)
	if err := errors.Join(first.Record(s), s.CopyOut(dst, a), second.Record(s)); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Since(first); !errors.Is(err, NotReady) {
		t.Errorf("the time before the end: %v", err)
	}
	if err := second.Sync(0); err != nil {
		t.Fatal(err)
	}
	if d, err := second.Since(first); err != nil || d <= 0 || d > time.Second {
		t.Errorf("%v between the events, %v", d, err)
	}
}

// TestEventIsAskedForBeforeSleep asks for an event until it has passed, or until the time
// for that is over, and sleeps then.
func TestEventIsAskedForBeforeSleep(t *testing.T) {
	c := openContext(t)
	s, e := openStream(t, c), openEvent(t, c)
	if err := e.Record(s); err != nil {
		t.Fatal(err)
	}
	defer func() { page[fakedriver.Unready] = 0 }()
	for _, tt := range []struct {
		name           string
		unready        uint64
		poll           time.Duration
		queries, waits uint64 // 0 queries for any number but none
	}{
		{"passed at once", 0, time.Hour, 1, 0},
		{"passed at the fourth question", 3, time.Hour, 4, 0},
		{"not in time", 1 << 60, time.Millisecond, 0, 1},
	} {
		page[fakedriver.Unready] = tt.unready
		queries, waits := fake.Calls(fakedriver.CallEventQuery), fake.Calls(fakedriver.CallEventSync)
		if err := e.Sync(tt.poll); err != nil {
			t.Error(tt.name, err)
		}
		queries, waits = fake.Calls(fakedriver.CallEventQuery)-queries, fake.Calls(fakedriver.CallEventSync)-waits
		if queries == 0 || tt.queries != 0 && queries != tt.queries || waits != tt.waits {
			t.Errorf("%s: %d questions and %d sleeps, expected %d and %d", tt.name, queries, waits, tt.queries, tt.waits)
		}
	}
	queries := fake.Calls(fakedriver.CallEventQuery)
	if err := e.Sync(0); err != nil || fake.Calls(fakedriver.CallEventQuery) != queries {
		t.Errorf("asked without time for it: %v", err)
	}
}

func TestEventErrors(t *testing.T) {
	c := openContext(t)
	s, e := openStream(t, c), openEvent(t, c)
	for call, f := range map[int]func() error{
		fakedriver.CallEventRecord:  func() error { return e.Record(s) },
		fakedriver.CallEventQuery:   func() error { return e.Sync(time.Minute) },
		fakedriver.CallEventSync:    func() error { return e.Sync(0) },
		fakedriver.CallEventDestroy: e.Close,
	} {
		failNext(t, call, 700)
		if err := f(); !errors.Is(err, Result(700)) {
			t.Errorf("call %d: %v", call, err)
		}
		page[fakedriver.Sticky] = 0
	}
	failNext(t, fakedriver.CallEventCreate, OutOfMemory)
	if _, err := c.NewEvent(false); !errors.Is(err, OutOfMemory) {
		t.Errorf("NewEvent: %v", err)
	}
}

// TestCopiesKeepTheirOrder queues copies at random and does them at once in a
// model: after a synchronization both agree.
func TestCopiesKeepTheirOrder(t *testing.T) {
	const blocks, block = 4, 16
	c := openContext(t)
	s, e := openStream(t, c), openEvent(t, c)
	device := alloc(t, c, blocks*block)
	in, out := hostMemory(t, 4096), hostMemory(t, blocks*block)
	rapid.Check(t, func(t *rapid.T) {
		var model [blocks * block]byte
		queue := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		fresh := 0 // what a queued copy reads is not written again
		write := func(to int) {
			src := in[fresh*block : (fresh+1)*block]
			fresh++
			copy(src, bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, block))
			copy(model[to*block:], src)
			queue(s.CopyIn(device+uint64(to*block), src))
		}
		for to := range blocks {
			write(to)
		}
		for range rapid.IntRange(0, 20).Draw(t, "copies") {
			to := rapid.IntRange(0, blocks-1).Draw(t, "to")
			if rapid.Bool().Draw(t, "write") {
				write(to)
			} else {
				queue(e.Record(s))
			}
		}
		queue(s.CopyOut(out, device))
		queue(s.Sync())
		if !bytes.Equal(out, model[:]) {
			t.Fatalf("%x, expected %x", out, model)
		}
	})
}
