package timeline

import (
	"time"
)

const (
	// Queries is how many queries that are over are remembered.
	Queries = 8192

	// pageQueries is how many are told of at once.
	pageQueries = 1024

	// copiedQueries is how many are copied while whoever feeds may have to wait.
	copiedQueries = 64
)

// Query is a query that is over. Times are since the daemon started; in JSON all
// of them are nanoseconds.
type Query struct {
	Service  string        `json:"service"`
	ID       uint64        `json:"id"`
	Batch    uint64        `json:"batch,omitempty"` // the one it ran in last, 0 if it never ran
	Size     int           `json:"size"`
	Arrival  time.Duration `json:"arrival_ns"`
	Started  time.Duration `json:"started_ns,omitempty"` // the first span of its batch, 0 if it never ran
	End      time.Duration `json:"end_ns"`
	Deadline time.Duration `json:"deadline_ns"`
	Result   string        `json:"result"`           // "finished", "dropped", "failed", "cancelled" or "refused"
	Reason   string        `json:"reason,omitempty"` // why it did not finish

	// Devices are those that its batch ran on one after another, of a batch that moved.
	Devices []string `json:"devices,omitempty"`
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

// add remembers a query that is over.
func (q *queries) add(over Query) {
	q.last++
	q.slots[q.last%Queries] = over
}

// copy copies those that follow what p has, as many as chunk takes, and
// moves p on.
func (q *queries) copy(p *QueryPage, chunk []Query) int {
	p.Next = min(p.Next, q.last)
	if oldest := q.last - min(q.last, Queries); p.Next < oldest { // some were overwritten meanwhile: a page has no holes
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
