package rpc

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// mostFruitless is the number of unsuccessful calls at which a connection is closed:
	// calls that bring no request, have no token, or are reset before they are answered.
	// The count falls by fruitlessRate a second, and by one for each answered call, so a
	// client may cancel half of its queries. A client that only opens and resets calls uses
	// the processor without ever waiting (rapid reset, CVE-2023-44487).
	mostFruitless = 1000
	fruitlessRate = 100

	// fruitlessPause is the pause for each unsuccessful call beyond maxStreams, so that
	// reconnecting gains a client little. headersRead limits how much is read between two
	// pauses, apart from the bytes of a request.
	fruitlessPause = 2 * time.Millisecond
	headersRead    = 4 << 10

	// goAwayTime is the write timeout for telling a client that its connection is closed.
	goAwayTime = 20 * time.Millisecond
)

// fruitless counts the unsuccessful calls of a connection, as a leaky bucket. A call counts
// from its begin and is counted off when it is answered.
type fruitless struct {
	mu struct {
		sync.Mutex
		calls float64
		at    time.Time
	}
}

// add counts a call that begins and returns the current count.
func (f *fruitless) add() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.mu.calls = max(f.mu.calls-now.Sub(f.mu.at).Seconds()*fruitlessRate, 0) + 1
	f.mu.at = now
	return f.mu.calls
}

// redeem counts off an answered call, and one more.
func (f *fruitless) redeem() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.calls = max(f.mu.calls-2, 0)
}

// Constants of HTTP/2 (RFC 9113).
const (
	prefaceBytes   = 24
	frameHeadBytes = 9
	kindHeaders    = 1
	kindGoAway     = 7
	enhanceCalm    = 11
	streamMask     = 1<<31 - 1
)

// errRestless is the reason for closing a connection with too many unsuccessful calls. Its
// text is sent in the GOAWAY frame.
var errRestless = errors.New("too_many_calls: most calls of this connection are reset, contain no request, or have no token")

// frames tracks the HTTP/2 frames in one direction of a connection.
type frames struct {
	head [frameHeadBytes]byte

	// have is the number of bytes of head seen so far.
	have int

	// skip is the number of bytes before the next head.
	skip int
}

// pass consumes bytes and calls each for every frame whose head they complete.
func (f *frames) pass(b []byte, each func(kind byte, id uint32)) {
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(b))
			f.skip -= n
			b = b[n:]
			continue
		}
		n := copy(f.head[f.have:], b)
		f.have += n
		b = b[n:]
		if f.have == frameHeadBytes {
			f.have = 0
			f.skip = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
			each(f.head[3], binary.BigEndian.Uint32(f.head[5:])&streamMask)
		}
	}
}

// between reports whether the bytes so far end with a complete frame.
func (f *frames) between() bool { return f.have == 0 && f.skip == 0 }

// framing is the decrypted connection that gRPC reads. It counts calls as they begin; gRPC
// itself limits only the number of concurrent ones.
type framing struct {
	net.Conn
	calls *fruitless
	in    frames

	// last is the ID of the last stream.
	last uint32

	// out is guarded because goAway may be called while gRPC writes.
	mu struct {
		sync.Mutex
		out frames
	}
}

// newFraming wraps a connection whose client has not sent the preface yet.
func newFraming(c net.Conn, calls *fruitless) *framing {
	return &framing{Conn: c, calls: calls, in: frames{skip: prefaceBytes}}
}

// Read reads from the client. It slows down while many of its calls are unsuccessful and
// fails when there are too many.
func (f *framing) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b[:min(len(b), f.in.skip+headersRead)])
	var most float64
	var pause time.Duration
	f.in.pass(b[:n], func(kind byte, id uint32) {
		if kind != kindHeaders {
			return
		}
		f.last = id
		if most = max(most, f.calls.add()); most > maxStreams {
			pause += fruitlessPause
		}
	})
	if most > mostFruitless {
		f.goAway()
		return 0, errRestless
	}
	time.Sleep(pause)
	return n, err
}

// Write writes to the client and tracks the frames.
func (f *framing) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.Conn.Write(b)
	f.mu.out.pass(b[:n], func(byte, uint32) {})
	return n, err
}

// goAway sends a GOAWAY frame with ENHANCE_YOUR_CALM. It does nothing if a write is blocked
// or a frame is incomplete, for the frame could not be placed.
func (f *framing) goAway() {
	if !f.mu.TryLock() {
		return
	}
	defer f.mu.Unlock()
	if !f.mu.out.between() {
		return
	}
	why := errRestless.Error()
	b := []byte{0, 0, byte(8 + len(why)), kindGoAway, 0, 0, 0, 0, 0}
	b = binary.BigEndian.AppendUint32(b, f.last)
	b = append(binary.BigEndian.AppendUint32(b, enhanceCalm), why...)
	_ = f.SetWriteDeadline(time.Now().Add(goAwayTime)) // the connection is closed in any case
	_, _ = f.Conn.Write(b)
}
