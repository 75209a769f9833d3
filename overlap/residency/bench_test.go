package residency

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// full returns a set of 1,000 models, of which so many are in memory.
func full(fit int) *Set {
	s := New(int64(fit)*10, 0, 1)
	random := rand.New(rand.NewPCG(1, 2))
	for id := range 1000 {
		s.Put(0, id, Model{Target: time.Duration(random.IntN(2000)) * time.Millisecond, Bytes: 10, Load: time.Second})
		s.Seen(0, id, 2000-id, false)
	}
	now := time.Duration(0)
	for id := range fit {
		s.Load(now, id)
		s.Next(now)
		now += time.Second
		s.Loaded(now, id, 10)
	}
	return s
}

// BenchmarkAsk is the cost of a query for a model that is not loaded.
func BenchmarkAsk(b *testing.B) {
	for _, fit := range []int{150, 990} {
		b.Run(fmt.Sprint(fit, " in memory"), func(b *testing.B) {
			s := full(fit)
			now := time.Hour
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				now += time.Microsecond
				s.turn = now + 1
				s.Ask(now, 999-i%(1000-fit), 0)
			}
		})
	}
}

// BenchmarkLoad is the cost of a query that has its model loaded, and of the load.
func BenchmarkLoad(b *testing.B) {
	s := full(150)
	now := time.Hour
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		id := 150 + i%850
		s.Ask(now, id, time.Hour)
		for {
			step, ok := s.Next(now)
			if !ok {
				break
			}
			if step.Load {
				now += time.Second
				s.Loaded(now, step.Model, 10)
				s.Seen(now, step.Model, 0, false)
			} else {
				s.Gone(now, step.Model)
			}
		}
	}
}

// TestAskAllocates nothing if no model is evicted.
func TestAskAllocates(t *testing.T) {
	s := full(150)
	now := time.Hour
	for id := 150; id < 1000; id++ {
		s.turn = now + 1
		s.Ask(now, id, 0)
	}
	if n := testing.AllocsPerRun(100, func() {
		now += time.Millisecond
		s.turn = now + 1
		s.Ask(now, 800, 0)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
