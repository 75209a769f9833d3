package query

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// Budget bounds the memory of the requests and answers that are under way, of all
// protocols together (limits.memory_bytes). Nobody waits for it: what does not fit is
// refused, so a client that stalls keeps only what it has.
type Budget struct {
	limit  int64
	used   atomic.Int64
	of     *Budget    // what it is a part or a share of, or nil
	share  bool       // of what it is
	even   int64      // what a share may always hold
	bodies *sync.Pool // *Body
}

// NewBudget returns a budget of which nothing is taken.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit, bodies: new(sync.Pool)} }

// Part returns a budget for one use of this one. What is taken from it counts for both,
// and only its own limit refuses: it can neither use up the whole nor be starved by it.
func (b *Budget) Part(limit int64) *Budget {
	return &Budget{limit: limit, of: b, bodies: new(sync.Pool)}
}

// Share returns a budget for one of many users of this one, or of a share of it. What is
// taken from it counts for all of them. It may always hold even, for which reservedShare
// of the whole is kept free. Beyond that neither it nor a share that it is of may hold
// more than is left to all others.
func (b *Budget) Share(even int64) *Budget {
	return &Budget{limit: b.limit, of: b, share: true, even: even, bodies: b.bodies}
}

// whole returns what a share is of in the end.
func (b *Budget) whole() *Budget {
	for b.share {
		b = b.of
	}
	return b
}

// fits reports whether a share may have n more.
func (b *Budget) fits(n int64) bool {
	whole := b.whole()
	left := whole.limit - whole.used.Load() - n
	if b.used.Load()+n <= b.even {
		return left >= 0
	}
	if left < whole.limit/reservedShare {
		return false
	}
	for ; b.share; b = b.of {
		if b.used.Load()+n > left {
			return false
		}
	}
	return true
}

// Limit returns how much there is in all.
func (b *Budget) Limit() int64 { return b.limit }

// Used returns how much is taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// Take takes n, or reports that there is not so much.
func (b *Budget) Take(n int64) bool {
	if b.share {
		if !b.fits(n) {
			return false
		}
		b.Force(n)
		if whole := b.whole(); whole.used.Load() > whole.limit { // others took meanwhile
			b.Give(n)
			return false
		}
		return true
	}
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	if b.of != nil {
		b.of.Force(n)
	}
	return true
}

// Force takes n that is in use already. While that is more than the limit, Take
// reports that there is nothing.
func (b *Budget) Force(n int64) {
	b.used.Add(n)
	if b.of != nil {
		b.of.Force(n)
	}
}

// Give gives n back.
func (b *Budget) Give(n int64) { b.Force(-n) }

const (
	// firstBytes is what a body gets before any of it has arrived. It then has growth
	// times as much each time it is full, so that a client cannot take memory by
	// announcing a large body, and beyond doubledBytes twice as much.
	firstBytes   = 16 << 10
	growth       = 4
	doubledBytes = 1 << 20

	// reservedShare is the part of a memory, one in so many, that is kept for what every
	// user may always have.
	reservedShare = 4

	// keptBytes is the largest buffer that is used again.
	keptBytes = 4 << 20
)

// Body is the bytes of one request, or of its answer. Its capacity is accounted
// to a budget.
type Body struct {
	Bytes []byte

	budget    *Budget
	accounted int64
	shared    bool // Bytes are not to be used again
}

// Errors of Body.Fill.
var (
	// ErrBodyMemory is returned when the budget is used up.
	ErrBodyMemory = Unavailable(ReasonNoMemory, "the requests and answers that are under way hold all memory there is for them (limits.memory_bytes)")

	// ErrBodyTooLarge is returned when a body is larger than one may be.
	ErrBodyTooLarge = errors.New("the body is too large")
)

// Reserve takes memory for an answer of so many bytes, which the caller gives back,
// or returns why there is none.
func (b *Budget) Reserve(bytes int64) *Error {
	switch {
	case bytes > b.limit:
		return errAnswerTooLarge(bytes)
	case !b.Take(bytes):
		return ErrBodyMemory
	}
	return nil
}

// errAnswerTooLarge is for an answer that there is never memory for: trying again
// is of no use.
func errAnswerTooLarge(bytes int64) *Error {
	return &Error{Status: http.StatusRequestEntityTooLarge, Reason: ReasonTooLarge, Message: fmt.Sprintf(
		"the answer could take %d bytes, more than limits.memory_bytes: ask for binary output (gRPC has no other), for fewer outputs, or send less", bytes)}
}

// Body returns an empty body, which the caller releases.
func (b *Budget) Body() *Body {
	body, ok := b.bodies.Get().(*Body)
	if !ok {
		body = new(Body)
	}
	body.budget = b
	return body
}

// Room returns an empty body with room for an answer of so many bytes, or why there
// is no memory for it.
func (b *Budget) Room(bytes int64) (*Body, *Error) {
	if bytes > b.limit {
		return nil, errAnswerTooLarge(bytes)
	}
	body := b.Body()
	if int64(cap(body.Bytes)) < bytes {
		body.Bytes = nil
	}
	if !body.account(max(bytes, int64(cap(body.Bytes)))) {
		body.Release()
		return nil, ErrBodyMemory
	}
	if body.Bytes == nil {
		body.Bytes = make([]byte, 0, bytes)
	}
	body.Bytes = body.Bytes[:0]
	return body, nil
}

// Holding returns a body of bytes that are there already, and that others may
// hold as well, or why there is no memory for them.
func (b *Budget) Holding(bytes []byte) (*Body, *Error) {
	body := &Body{Bytes: bytes[:len(bytes):len(bytes)], budget: b, accounted: int64(len(bytes)), shared: true}
	return body, b.Reserve(body.accounted)
}

// Settle accounts what the body holds, whether there is so much memory or not.
func (b *Body) Settle() {
	bytes := int64(cap(b.Bytes))
	b.budget.Force(bytes - b.accounted)
	b.accounted = bytes
}

// account sets what the body has of the budget, or reports that there is not so
// much.
func (b *Body) account(bytes int64) bool {
	more := bytes - b.accounted
	if more > 0 && !b.budget.Take(more) {
		return false
	}
	if more < 0 {
		b.budget.Give(-more)
	}
	b.accounted = bytes
	return true
}

// Release gives the memory of the body back. It must not be used again.
func (b *Body) Release() {
	b.account(0)
	if cap(b.Bytes) > keptBytes || b.shared {
		b.Bytes, b.shared = nil, false
	}
	b.budget.bodies.Put(b)
}

// Fill reads r to its end, which must come within most bytes. Announced is how
// many there are, negative if that is not known; io.ErrUnexpectedEOF is returned
// for fewer. What has come stays in the body, accounted, until it is released.
func (b *Body) Fill(r io.Reader, announced, most int64) error {
	if announced > most {
		return ErrBodyTooLarge
	}
	b.Bytes = b.Bytes[:0]
	if !b.account(int64(cap(b.Bytes))) {
		b.Bytes = nil // it may need less
	}
	for int64(len(b.Bytes)) != announced {
		if len(b.Bytes) == cap(b.Bytes) && !b.grow(announced, most) {
			return ErrBodyMemory
		}
		end := cap(b.Bytes)
		if announced >= 0 {
			end = int(min(int64(end), announced))
		}
		n, err := r.Read(b.Bytes[len(b.Bytes):end])
		b.Bytes = b.Bytes[:len(b.Bytes)+n]
		switch {
		case int64(len(b.Bytes)) > most:
			return ErrBodyTooLarge
		case err == io.EOF && announced >= 0 && int64(len(b.Bytes)) != announced:
			return io.ErrUnexpectedEOF
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// grow makes room: several times as much as before, and no more than can be needed.
func (b *Body) grow(announced, most int64) bool {
	size := max(2*int64(cap(b.Bytes)), min(growth*int64(cap(b.Bytes)), doubledBytes), firstBytes)
	if announced >= 0 {
		size = min(size, announced)
	}
	size = min(size, most+1)
	if !b.account(size) {
		return false
	}
	b.Bytes = append(make([]byte, 0, size), b.Bytes...)
	return true
}
