package text

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/text/export"
)

// MaxTexts is the largest number of texts of a request.
const MaxTexts = 2048

// Item is one text, or a pair of texts if Pair is not nil. IDs are tokens in its place.
type Item struct {
	Text string
	Pair *string
	IDs  []int64
}

// bytes returns the size of the text.
func (t *Item) bytes() int {
	if t.Pair != nil {
		return len(t.Text) + len(*t.Pair)
	}
	return len(t.Text)
}

// options are what a client asks for besides, such as a timeout.
type options interface {
	// Apply sets the options of a query. It is called from several goroutines at once.
	Apply(c *query.Call) *query.Error
}

// Request is a request of texts. Its queries arrive together, at Arrival, and have the same
// Options. Memory is what tokens and results count against.
//
// Raw asks for the model's scores in the place of embeddings. Trace, which may be nil, records
// the first query.
type Request struct {
	Service *query.Service
	Items   []Item
	Arrival time.Time
	Options options
	Memory  *query.Budget
	Raw     bool
	Trace   *tracing.Query
}

// Answer has a row of numbers for each text: its embedding or its scores. Tokens is the sum
// of the tokens that the model saw, Cut the number of texts that were truncated, and Variant
// the variant that answered, "" for none or several.
type Answer struct {
	Rows    [][]float32
	Tokens  int
	Cut     int
	Variant string

	memory *query.Budget
	held   atomic.Int64
}

// Release gives the memory of the answer back.
func (a *Answer) Release() { a.memory.Give(a.held.Swap(0)) }

// take accounts for memory until Release.
func (a *Answer) take(bytes int) *query.Error {
	if !a.memory.Take(int64(bytes)) {
		return query.ErrBodyMemory
	}
	a.held.Add(int64(bytes))
	return nil
}

// ErrTexts is returned for a request with more than MaxTexts texts.
var ErrTexts = query.Invalid("the request has more than %d texts: send them in several requests", MaxTexts)

// Errors of requests of texts.
var (
	errReplaced = query.Unavailable(query.ReasonLoading, "the service is being replaced by another model: try again")
	errLeft     = query.Unavailable(query.ReasonCancelled, "the client disconnected")
	errLate     = query.Unavailable(query.ReasonDeadline, "the deadline passed before all texts were in the queue; send less, or allow more time")

	// errStopped stands for one of the two above.
	errStopped = query.Unavailable(query.ReasonCancelled, "stopped")
)

// work is a request while it is answered. Its sequences are in the order of the items; each is
// written by one goroutine before any query is sent.
type work struct {
	*Request
	answer    *Answer
	text      *export.Text
	sequences []sequence

	variants sync.Map // the names of those that have answered
	sent     int      // how many queries were sent

	// gate has let the request in at turn, if it has several texts.
	gate *gate
	turn time.Time
}

// sequence is the tokens of a text.
type sequence struct {
	ids, types []int64
}
