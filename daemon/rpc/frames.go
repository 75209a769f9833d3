package rpc

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// mostFruitless is how many calls of a connection may bring no request, or be reset
	// before they are answered, and fruitlessRate how many more in each second. A call
	// that is answered makes up for one that is not, so that a client may cancel half of
	// its queries. One that sends no token, or resets calls as soon as they have begun,
	// takes up the processor with them and waits for none (CVE-2023-44487).
	mostFruitless = 1000
	fruitlessRate = 100

	// fruitlessPause is how long the connection rests for each call beyond as many as may
	// be open at once, so that a client that connects again gains little. What is read at
	// once is headersRead at most, apart from the bytes of a request.
	fruitlessPause = 2 * time.Millisecond
	headersRead    = 4 << 10

	// goAwayTime is for writing to a client that its connection is over.
	goAwayTime = 20 * time.Millisecond
)

// fruitless counts the calls of a connection that were begun and not answered.
type fruitless struct {
	mu struct {
		sync.Mutex
		calls float64
		at    time.Time
	}
}

// add counts a call that begins, and returns how many there are.
func (f *fruitless) add() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.mu.calls = max(f.mu.calls-now.Sub(f.mu.at).Seconds()*fruitlessRate, 0) + 1
	f.mu.at = now
	return f.mu.calls
}

// redeem counts a call that was answered off, and another one.
func (f *fruitless) redeem() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.calls = max(f.mu.calls-2, 0)
}

// Parts of HTTP/2 (RFC 9113) that are read, or written when a connection ends.
const (
	prefaceBytes   = 24
	frameHeadBytes = 9
	kindHeaders    = 1
	kindGoAway     = 7
	enhanceCalm    = 11
	streamMask     = 1<<31 - 1
)

// errRestless is why a connection is closed.
var errRestless = errors.New("too_many_calls: most of those that this connection begins are reset, bring no request, or have no token")

// frames finds the frames in what goes one way through a connection.
type frames struct {
	head [frameHeadBytes]byte
	have int // bytes of head that have passed
	skip int // bytes that follow before the next head
}

// pass takes in bytes and calls each for every frame that begins in them.
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

// between reports whether what has passed ends with a whole frame.
func (f *frames) between() bool { return f.have == 0 && f.skip == 0 }

// framing is a connection as gRPC reads it, decrypted, whose calls are counted as they
// begin: gRPC itself bounds only those that are open at once.
type framing struct {
	net.Conn
	calls *fruitless
	in    frames
	last  uint32 // stream

	mu struct {
		sync.Mutex
		out frames
	}
}

func newFraming(c net.Conn, calls *fruitless) *framing {
	return &framing{Conn: c, calls: calls, in: frames{skip: prefaceBytes}}
}

// Read reads what the client sends, more slowly while many of its calls are fruitless,
// until too many are.
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

// Write sends what gRPC writes.
func (f *framing) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.Conn.Write(b)
	f.mu.out.pass(b[:n], func(byte, uint32) {})
	return n, err
}

// goAway tells the client to calm down. There is no time for one that takes no answers,
// and no place within a frame.
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
