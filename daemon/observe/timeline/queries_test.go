package timeline

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestQueries(t *testing.T) {
	r := New(time.Now(), services(2))
	if p := r.ReadQueries(0); p.Queries == nil || len(p.Queries) > 0 || p.Next != 0 || p.Missed != 0 || p.More {
		t.Errorf("of none: %+v", p)
	}
	r.ended(1, Query{ID: 7, Batch: 3, Size: 2, Arrival: 1, Started: 2, End: 3, Deadline: 9, Result: "finished"})
	r.ended(0, Query{ID: 8, Arrival: 4, End: 5, Deadline: 5, Result: "dropped", Reason: "cannot_finish"})
	r.ended(99, Query{ID: 9, Result: "refused"}) // of nobody
	p := r.ReadQueries(0)
	if len(p.Queries) != 3 || p.Next != 3 || p.Queries[0].Service != "b" || p.Queries[1].Service != "a" || p.Queries[2].Service != "" || p.Queries[0].Started != 2 {
		t.Errorf("%+v", p)
	}
	if p = r.ReadQueries(2); len(p.Queries) != 1 || p.Queries[0].ID != 9 {
		t.Errorf("after two: %+v", p)
	}
	if p = r.ReadQueries(Latest); len(p.Queries) != 0 || p.Next != 3 || p.Missed != 0 {
		t.Errorf("the latest: %+v", p)
	}
	text, err := json.Marshal(r.ReadQueries(Latest))
	if err != nil || strings.Contains(string(text), "null") {
		t.Errorf("%s, %v", text, err)
	}
}

// However reads and queries are mixed, each query is read once and in order, or
// counted as missed.
func TestQueriesFollowEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New(time.Now(), services(1))
		var ended, since uint64
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			for range rapid.IntRange(0, 5000).Draw(t, "queries") {
				ended++
				r.ended(0, Query{ID: ended})
			}
			p := r.ReadQueries(since)
			want := since + p.Missed
			for i := range p.Queries {
				if want++; p.Queries[i].ID != want {
					t.Fatalf("query %d, want %d", p.Queries[i].ID, want)
				}
			}
			if p.Next != want || p.More != (want < ended) || len(p.Queries) > pageQueries || ended-want > Queries {
				t.Fatalf("%d of %d: next %d, more %t, %d missed", want, ended, p.Next, p.More, p.Missed)
			}
			since = p.Next
		}
	})
}

// Reading while it is fed is safe, and feeding allocates nothing.
func TestQueriesWhileFed(t *testing.T) {
	r := New(time.Now(), services(1))
	stop := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		for since := uint64(0); ; {
			select {
			case <-stop:
				return
			default:
			}
			p := r.ReadQueries(since)
			for i := range p.Queries {
				if q := &p.Queries[i]; uint64(q.Arrival) != q.ID || q.Service != "a" {
					t.Errorf("torn: %+v", q)
					return
				}
			}
			since = p.Next
		}
	})
	n := uint64(0)
	feed := func() {
		n++
		r.ended(0, Query{ID: n, Arrival: time.Duration(n)})
	}
	for range 3 * Queries {
		feed()
	}
	close(stop)
	reading.Wait()
	if got := testing.AllocsPerRun(100, feed); got > 0 {
		t.Errorf("%v allocations", got)
	}
}
