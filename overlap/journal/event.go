package journal

import (
	"errors"

	"github.com/overlapd/overlapd/overlap"
)

// event is the kind of a record.
type event string

const (
	eventArrive     event = "arrive"
	eventNext       event = "next"
	eventPlan       event = "plan"
	eventFinish     event = "finish"
	eventCancel     event = "cancel"
	eventDown       event = "down"
	eventUp         event = "up"
	eventLoad       event = "load"
	eventAdd        event = "add"
	eventChange     event = "change"
	eventRemove     event = "remove"
	eventDrain      event = "drain"
	eventCheckpoint event = "checkpoint"
	eventGap        event = "gap"
)

// defines reports whether the event holds the definition of a service.
func (e event) defines() bool { return e == eventLoad || e == eventAdd || e == eventChange }

// failures are the errors that the scheduler's methods return, by the names
// they have in the log.
var failures = []struct {
	err  error
	name string
}{
	{overlap.ErrQueueFull, "queue_full"},
	{overlap.ErrExpired, "expired"},
	{overlap.ErrDraining, "draining"},
	{overlap.ErrBadQuery, "bad_query"},
	{overlap.ErrDuplicateQuery, "duplicate_query"},
	{overlap.ErrUnknownService, "unknown_service"},
	{overlap.ErrUnknownRound, "unknown_round"},
	{overlap.ErrBadOutcome, "bad_outcome"},
	{overlap.ErrServiceBusy, "service_busy"},
	{overlap.ErrServiceID, "service_id"},
	{overlap.ErrTooManyServices, "too_many_services"},
	{overlap.ErrOtherModel, "other_model"},
	{overlap.ErrBadService, "bad_service"},
}

// failureName returns the name of an error, "" for none.
func failureName(err error) string {
	if err == nil {
		return ""
	}
	for i := range failures {
		if errors.Is(err, failures[i].err) {
			return failures[i].name
		}
	}
	return "refused"
}

// statuses are those that a span may end with.
var statuses = []overlap.Status{overlap.SpanDone, overlap.SpanStopped, overlap.SpanLost, overlap.SpanFailed}

// statusName returns the name of a status, also of one that cannot be.
func statusName(s overlap.Status) string {
	for _, known := range statuses {
		if s == known {
			return s.String()
		}
	}
	return "unknown"
}

func statusNamed(name string) (overlap.Status, bool) {
	for _, s := range statuses {
		if s.String() == name {
			return s, true
		}
	}
	return overlap.Status(len(statuses)), name == "unknown"
}
