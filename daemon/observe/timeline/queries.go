package timeline

import (
	"time"
)

const (
	// Queries is the number of ended queries that are kept.
	Queries = 8192

	// pageQueries is the maximum number on a page.
	pageQueries = 1024

	// copiedQueries is how many are copied under the lock at a time, so that the scheduler
	// goroutine waits for microseconds at most.
	copiedQueries = 64
)

// Query is a query that has ended. Times are since the daemon started, in nanoseconds in
// JSON.
type Query struct {
	Service string `json:"service"`
	ID      uint64 `json:"id"`

	// Batch is the last batch that it ran in, 0 if it never ran.
	Batch   uint64        `json:"batch,omitempty"`
	Size    int           `json:"size"`
	Arrival time.Duration `json:"arrival_ns"`

	// Started is when the first span of its batch began, 0 if it never ran.
	Started  time.Duration `json:"started_ns,omitempty"`
	End      time.Duration `json:"end_ns"`
	Deadline time.Duration `json:"deadline_ns"`

	// Result is "finished", "dropped", "failed", "cancelled" or "refused". Reason says why
	// it did not finish.
	Result string `json:"result"`
	Reason string `json:"reason,omitempty"`

	// Devices lists the devices that its batch ran on, if it has moved.
	Devices []string `json:"devices,omitempty"`
}

// QueryPage is a page of ended queries, in the order in which they ended.
type QueryPage struct {
	// Epoch is when the daemon started.
	Epoch   time.Time `json:"epoch"`
	Queries []Query   `json:"queries"`

	// Next is the "since" of the next request.
	Next uint64 `json:"next"`

	// Missed is the number of queries that belong before these but are no longer kept.
	Missed uint64 `json:"missed"`

	// More is set if there are queries after these.
	More bool `json:"more"`
}

// queries is a ring of the last queries. Query n, counted from 1, is at n % Queries.
type queries struct {
	slots [Queries]Query
	last  uint64
}

// add records an ended query.
func (q *queries) add(over Query) {
	q.last++
	q.slots[q.last%Queries] = over
}

// copy copies the queries after p.Next, as many as fit into chunk, and advances p.
func (q *queries) copy(p *QueryPage, chunk []Query) int {
	p.Next = min(p.Next, q.last)
	// Some were overwritten between two chunks. A page must have no gaps, so it starts
	// again.
	if oldest := q.last - min(q.last, Queries); p.Next < oldest {
		p.Missed += oldest - p.Next + uint64(len(p.Queries))
		p.Next, p.Queries = oldest, p.Queries[:0]
	}
	n := int(min(q.last-p.Next, uint64(len(chunk))))
	for i := range n {
		p.Next++
		chunk[i] = q.slots[p.Next%Queries]
	}
	p.More = p.Next < q.last
	return n
}
