package overlap

import "errors"

// Errors of Arrive: the query was not accepted and gets no Answer.
var (
	// ErrQueueFull is returned when as many queries of the service wait as
	// its queue limit allows.
	ErrQueueFull = errors.New("queue is full")

	// ErrUnknownService is returned when there is no service with this ID, or
	// it was removed.
	ErrUnknownService = errors.New("unknown service")

	// ErrExpired is returned when the deadline has passed on arrival.
	ErrExpired = errors.New("deadline has passed")

	// ErrDraining is returned when Drain was called before.
	ErrDraining = errors.New("draining")

	// ErrBadQuery is returned when a query has an impossible size, sequence
	// length or priority, or asks for more accuracy than its service has.
	ErrBadQuery = errors.New("bad query")

	// ErrDuplicateQuery is returned when a query with this ID was accepted
	// before and is not yet answered.
	ErrDuplicateQuery = errors.New("query ID is in use")
)

// Errors of Load, Add, Change and Remove, which have ErrUnknownService too.
// Nothing has changed.
var (
	// ErrServiceBusy is returned by Load when the service is not down or one of
	// its batches runs, and by Remove when one of its queries is not answered.
	ErrServiceBusy = errors.New("service is in use")

	// ErrServiceID is returned by Add when the ID is neither that of a service
	// that was removed nor the next one.
	ErrServiceID = errors.New("service ID is not free")

	// ErrTooManyServices is returned by Add when there are MaxServices.
	ErrTooManyServices = errors.New("too many services")

	// ErrOtherModel is returned by Change when the name or the number of
	// operators is another one: that takes a service of its own.
	ErrOtherModel = errors.New("the name and the operators of a service stay")

	// ErrBadService is returned when the definition of a service is impossible.
	ErrBadService = errors.New("impossible service")
)

// Errors of Finish.
var (
	// ErrUnknownRound is returned when the outcome is not that of the round
	// that runs. Nothing has changed.
	ErrUnknownRound = errors.New("outcome of a round that does not run")

	// ErrBadOutcome is returned when the outcome leaves out a span or
	// contradicts it. The span counts as failed.
	ErrBadOutcome = errors.New("outcome contradicts its round")
)

// ErrUnknownEvent is returned by Step when the kind of an event is none of those declared.
var ErrUnknownEvent = errors.New("unknown kind of event")

// ErrSnapshot is returned by Restore when a snapshot contradicts itself or the
// configuration.
var ErrSnapshot = errors.New("impossible snapshot")
