package timeline

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

const (
	// Queries is how many queries that are over are remembered.
	Queries = 8192

	// PageQueries is how many are told of at once.
	PageQueries = 1024

	// copiedQueries is how many are copied while whoever feeds may have to wait.
	copiedQueries = 64
)

// Query is a query that is over. Times are since the daemon started; in JSON all
// of them are nanoseconds.
type Query struct {
	Service  string        `json:"service"`
	ID       uint64        `json:"id"`
	Batch    uint64        `json:"batch,omitempty"` // that it ran in last, 0 if it never ran
	Size     int           `json:"size"`
	Arrival  time.Duration `json:"arrival_ns"`
	Started  time.Duration `json:"started_ns,omitempty"` // the first span of its batch, 0 if it never ran
	End      time.Duration `json:"end_ns"`
	Deadline time.Duration `json:"deadline_ns"`
	Result   string        `json:"result"`           // "finished", "dropped", "failed", "cancelled" or "refused"
	Reason   string        `json:"reason,omitempty"` // why it did not finish
}

// QueryPage is which queries are over lately.
type QueryPage struct {
	Epoch   time.Time `json:"epoch"`   // when the daemon started
	Queries []Query   `json:"queries"` // in the order in which they ended
	Next    uint64    `json:"next"`    // ask for what follows it
	Missed  uint64    `json:"missed"`  // queries that would have come first, and are forgotten
	More    bool      `json:"more"`    // there are queries after these
}

// queries holds the last queries that are over: query n is in n % Queries,
// counted from 1.
type queries struct {
	slots [Queries]Query
	last  uint64
}

// ended remembers a query of a service that is over. Its name is the ring's to
// fill in. It is called by the goroutine that calls Observe.
func (r *Ring) ended(service models.ServiceID, q *Query) {
	r.mu.Lock()
	defer r.mu.Unlock()
	over := &r.mu.queries
	over.last++
	at := &over.slots[over.last%Queries]
	*at = *q
	if l := r.laneOf(service); l != nil {
		at.Service = l.name
	}
}

// ReadQueries tells of the queries that ended after so many, oldest first and at
// most PageQueries; with Latest, of none but how many there were.
func (r *Ring) ReadQueries(since uint64) *QueryPage {
	p := &QueryPage{Epoch: r.epoch, Queries: []Query{}, Next: since}
	var chunk [copiedQueries]Query
	for {
		n := r.copyQueries(p, chunk[:min(copiedQueries, PageQueries-len(p.Queries))])
		p.Queries = append(p.Queries, chunk[:n]...) // without the lock: it may take memory
		if !p.More || len(p.Queries) == PageQueries {
			return p
		}
	}
}

// copyQueries copies those that follow what p has, as many as chunk takes, and
// moves p on.
func (r *Ring) copyQueries(p *QueryPage, chunk []Query) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	over := &r.mu.queries
	p.Next = min(p.Next, over.last)
	if oldest := over.last - min(over.last, Queries); p.Next < oldest { // some were overwritten meanwhile: a page has no holes
		p.Missed += oldest - p.Next + uint64(len(p.Queries))
		p.Next, p.Queries = oldest, p.Queries[:0]
	}
	n := int(min(over.last-p.Next, uint64(len(chunk))))
	for i := range n {
		p.Next++
		chunk[i] = over.slots[p.Next%Queries]
	}
	p.More = p.Next < over.last
	return n
}
