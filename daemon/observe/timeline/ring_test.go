package timeline

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// numbers returns those of the rounds on a page.
func numbers(p *Page) (list []uint64) {
	for i := range p.Rounds {
		list = append(list, p.Rounds[i].Number)
	}
	return list
}

func TestRead(t *testing.T) {
	s := newScheduled(t, 1)
	s.rounds(Rounds + 100)
	last := uint64(Rounds + 100)
	for _, c := range []struct {
		since       uint64
		limit       int
		first, next uint64
		missed      uint64
		more        bool
	}{
		{since: last - 3, limit: 10, first: last - 2, next: last},
		{since: last - 20, limit: 5, first: last - 19, next: last - 15, more: true},
		{since: 0, limit: 7, first: 101, next: 107, missed: 100, more: true},
		{since: 50, limit: 7, first: 101, next: 107, missed: 50, more: true},
		{since: Latest, limit: 4, first: last - 3, next: last},
		{since: last, limit: 4, next: last},
		{since: last + 9, limit: 4, next: last}, // of a daemon that was there before
		{since: 0, limit: 1 << 20, first: 101, next: 100 + PageRounds, missed: 100, more: true},
	} {
		p := s.ring.Read(c.since, c.limit, nil)
		var first uint64
		if len(p.Rounds) > 0 {
			first = p.Rounds[0].Number
		}
		if first != c.first || p.Next != c.next || p.Missed != c.missed || p.More != c.more {
			t.Errorf("%+v: from %d, next %d, missed %d, more %t", c, first, p.Next, p.Missed, p.More)
		}
	}
	if p := s.ring.ReadLatest(last-100, 10, nil); p.Rounds[0].Number != last-9 || p.Missed != 90 || p.Next != last {
		t.Errorf("the latest: from %d, missed %d", p.Rounds[0].Number, p.Missed)
	}
	if !s.ring.Changed(last-1) || s.ring.Changed(last) {
		t.Error("what has changed")
	}
}

// However reads and rounds are mixed, and whatever page is written over, each
// round is read once and in order, or counted as missed.
func TestReadsFollowEachOther(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newScheduled(t, 1)
		var page *Page
		var since, seen uint64
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			s.rounds(rapid.IntRange(0, 900).Draw(rt, "rounds"))
			page = s.ring.Read(since, rapid.IntRange(0, 300).Draw(rt, "limit"), page)
			want := since + page.Missed
			for _, n := range numbers(page) {
				if want++; n != want {
					rt.Fatalf("round %d, want %d", n, want)
				}
			}
			if page.Next != want && len(page.Rounds) > 0 {
				rt.Fatalf("next is %d after %d", page.Next, want)
			}
			seen += page.Missed + uint64(len(page.Rounds))
			if len(page.Rounds) == 0 {
				seen -= page.Missed // it is told again
				continue
			}
			since = page.Next
			if seen != since {
				rt.Fatalf("%d of %d rounds are told of", seen, since)
			}
		}
	})
}

// Reading while it is fed is safe, and what is read is whole.
func TestReadWhileFed(t *testing.T) {
	s := newScheduled(t, 1)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			var page *Page
			for {
				select {
				case <-stop:
					return
				default:
				}
				page = s.ring.Read(Latest, PageRounds, page)
				for i := range page.Rounds {
					r := &page.Rounds[i]
					if len(r.Spans) != 1 || r.Spans[0].IDs[0] != r.Number || r.Spans[0].Status != "done" || i > 0 && r.Number != page.Rounds[i-1].Number+1 {
						t.Errorf("torn: %+v", r)
						return
					}
				}
			}
		})
	}
	s.rounds(2 * Rounds)
	close(stop)
	readers.Wait()
}

// Once the ring has been round, feeding it allocates nothing.
func TestFeedingAllocatesNothing(t *testing.T) {
	s := newScheduled(t, 2)
	s.arrive(0, time.Second)
	s.arrive(1, time.Second)
	r := s.scheduler.Ready(0).Round
	why := s.scheduler.Explain()
	answer := s.ring.answer(0, time.Millisecond, true)
	feed := func() {
		r.Number++
		s.ring.begin(r, &why, s.services)
		s.ring.Observe(answer)
	}
	for range Rounds {
		feed()
	}
	if n := testing.AllocsPerRun(100, feed); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
