package query

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// Budget limits the memory of requests and responses in flight, summed over all protocols
// (limits.memory_bytes). Taking memory never blocks: what does not fit is rejected, so a
// stalled client cannot make others wait.
//
// A budget is a whole, a part (with a limit of its own) or a share (without one). Every use
// of a part or a share also counts against the budget it was made from. Its methods may be
// called from any goroutine.
type Budget struct {
	limit int64
	used  atomic.Int64

	// of is the budget that this one is a part or a share of, nil for a whole one.
	of    *Budget
	share bool

	// even is what a share may hold even when the others have taken the rest.
	even int64

	// bodies pools *Body, so that buffers are reused between requests.
	bodies *sync.Pool
}

// NewBudget returns an unused budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit, bodies: new(sync.Pool)} }

// Part returns a budget for one kind of use. Only its own limit rejects, so it can neither
// use up the parent nor be starved by it; what it takes still counts in the parent.
func (b *Budget) Part(limit int64) *Budget {
	return &Budget{limit: limit, of: b, bodies: new(sync.Pool)}
}

// Share returns a budget for one of many users of b, which may be a share itself. The new
// share may always hold even bytes; one part in reservedShare of the whole is kept free for
// that. Beyond even, no share on the way to the whole may hold more than what all others
// would have left. A single user can therefore take at most half of the memory, and less as
// it fills up.
func (b *Budget) Share(even int64) *Budget {
	return &Budget{limit: b.limit, of: b, share: true, even: even, bodies: b.bodies}
}

// whole returns the budget at the root of a chain of shares.
func (b *Budget) whole() *Budget {
	for b.share {
		b = b.of
	}
	return b
}

// fits reports whether the share may take n more bytes. It does not take them, so Take
// checks the whole again afterwards.
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

// Limit returns the limit in bytes.
func (b *Budget) Limit() int64 { return b.limit }

// Used returns the number of bytes taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// Take takes n bytes and reports whether they were available. It takes nothing if they were
// not.
func (b *Budget) Take(n int64) bool {
	if b.share {
		if !b.fits(n) {
			return false
		}
		b.Force(n)
		// Others may have taken memory since fits looked.
		if whole := b.whole(); whole.used.Load() > whole.limit {
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

// Force takes n bytes that are in use already, even beyond the limit. Take then fails until
// enough has been given back. A negative n gives memory back.
func (b *Budget) Force(n int64) {
	b.used.Add(n)
	if b.of != nil {
		b.of.Force(n)
	}
}

// Give returns n bytes to the budget and to its parents.
func (b *Budget) Give(n int64) { b.Force(-n) }

const (
	// A body begins with firstBytes. Each time it is full it grows by the factor growth,
	// and by 2 beyond doubledBytes. A client therefore cannot take memory by announcing a
	// large body: it has to send one.
	firstBytes   = 16 << 10
	growth       = 4
	doubledBytes = 1 << 20

	// reservedShare is the divisor of a budget for the part that is reserved for the even
	// shares: a quarter.
	reservedShare = 4

	// keptBytes is the capacity above which a buffer is not pooled: one large request must
	// not pin its memory for good.
	keptBytes = 4 << 20
)

// Body holds the bytes of one request or one response. Its capacity, not its length, is
// accounted to a budget.
type Body struct {
	Bytes []byte

	budget *Budget

	// accounted is how much of the budget the body has taken.
	accounted int64

	// shared is set if others hold Bytes too, so that they are not pooled.
	shared bool
}

// Errors that Body.Fill returns besides those of its reader.
var (
	// ErrBodyMemory is returned when the budget is used up.
	ErrBodyMemory = Unavailable(ReasonNoMemory, "all memory for requests and answers in progress is in use (limits.memory_bytes)")

	// ErrBodyTooLarge is returned when a body is larger than the caller allows.
	ErrBodyTooLarge = errors.New("the body is too large")
)

// Reserve takes memory for a response of the given size. The caller gives it back with
// Give. It returns an error if the memory is in use (worth a retry) or if it exceeds the
// limit (not worth one).
func (b *Budget) Reserve(bytes int64) *Error {
	switch {
	case bytes > b.limit:
		return errAnswerTooLarge(bytes)
	case !b.Take(bytes):
		return ErrBodyMemory
	}
	return nil
}

// errAnswerTooLarge is returned for a response larger than the whole budget. It has status
// 413 and no RetryAfter because trying again cannot help.
func errAnswerTooLarge(bytes int64) *Error {
	return &Error{Status: http.StatusRequestEntityTooLarge, Reason: ReasonTooLarge, Message: fmt.Sprintf(
		"the answer could take %d bytes, more than limits.memory_bytes: request binary output (gRPC has no other) or fewer outputs, or send less", bytes)}
}

// Body returns an empty body, which the caller must release.
func (b *Budget) Body() *Body {
	body, ok := b.bodies.Get().(*Body)
	if !ok {
		body = new(Body)
	}
	body.budget = b
	return body
}

// Room returns an empty body with capacity for a response of the given size, already
// accounted. It returns an error if there is no memory for it.
func (b *Budget) Room(bytes int64) (*Body, *Error) {
	if bytes > b.limit {
		return nil, errAnswerTooLarge(bytes)
	}
	body := b.Body()
	// A pooled buffer that is too small is dropped, for it would be copied while it grows.
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

// Holding returns a body that wraps bytes which exist already and which others may hold as
// well. The memory is accounted, so it can fail like Reserve.
func (b *Budget) Holding(bytes []byte) (*Body, *Error) {
	body := &Body{Bytes: bytes[:len(bytes):len(bytes)], budget: b, accounted: int64(len(bytes)), shared: true}
	return body, b.Reserve(body.accounted)
}

// Settle accounts the actual capacity of the body, even beyond the limit. An encoder that
// appends to Bytes calls it when it is done.
func (b *Body) Settle() {
	bytes := int64(cap(b.Bytes))
	b.budget.Force(bytes - b.accounted)
	b.accounted = bytes
}

// account changes what the body has taken of its budget to the given number of bytes. It
// reports whether the budget allowed it; lowering always succeeds.
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

// Release returns the memory of the body to the budget and its buffer to the pool. The body
// must not be used afterwards.
func (b *Body) Release() {
	b.account(0)
	if cap(b.Bytes) > keptBytes || b.shared {
		b.Bytes, b.shared = nil, false
	}
	b.budget.bodies.Put(b)
}

// Fill reads r to its end. announced is the expected length, or negative if it is unknown;
// a shorter body yields io.ErrUnexpectedEOF. A body longer than most yields
// ErrBodyTooLarge. What was read stays in the body and stays accounted until Release,
// whether Fill succeeds or not.
func (b *Body) Fill(r io.Reader, announced, most int64) error {
	if announced > most {
		return ErrBodyTooLarge
	}
	b.Bytes = b.Bytes[:0]
	if !b.account(int64(cap(b.Bytes))) {
		// The pooled buffer does not fit into the budget, but a smaller one may.
		b.Bytes = nil
	}
	for int64(len(b.Bytes)) != announced {
		if len(b.Bytes) == cap(b.Bytes) && !b.grow(announced, most) {
			return ErrBodyMemory
		}
		// Never read beyond the announced length: the bytes after it belong to the next request
		// of the connection.
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

// grow enlarges the buffer by a factor, see firstBytes, but never beyond what the body can
// need. It reports whether the budget had the memory.
func (b *Body) grow(announced, most int64) bool {
	size := max(2*int64(cap(b.Bytes)), min(growth*int64(cap(b.Bytes)), doubledBytes), firstBytes)
	if announced >= 0 {
		size = min(size, announced)
	}
	// One byte more than allowed, so that Fill sees that a body is too large.
	size = min(size, most+1)
	if !b.account(size) {
		return false
	}
	b.Bytes = append(make([]byte, 0, size), b.Bytes...)
	return true
}
