package query

// Backend runs the queries of its services. Its methods are called from many goroutines at
// once, and none of them may block.
//
// A call goes through Alloc, then Submit. If Submit fails, the caller returns the memory
// with Free. If it succeeds, the memory belongs to the backend and exactly one
// [Call.Answer] follows, whatever happens. The caller reads the outputs and then calls
// Release once.
type Backend interface {
	// Alloc returns memory shared with the workers of the service, large enough for all
	// inputs of one query. It fails with ErrNoMemory, ErrTooLarge or ErrUnavailable.
	Alloc(s *Service, bytes int64) (Memory, error)

	// Free returns memory that no submitted call uses.
	Free(s *Service, m Memory)

	// Submit queues a call. It fails with ErrQueueFull, ErrDraining, ErrUnavailable or an
	// *Error of the backend.
	Submit(c *Call) error

	// Cancel tells the backend that the client of a submitted call has disconnected. It is
	// called at most once a call and never after Release. The backend must still answer.
	Cancel(c *Call)

	// Release returns the memory of an answered call. The backend must have dropped c when
	// it returns, because c is reused.
	Release(c *Call)
}
