package reproduce

import (
	"sync"
	"testing"
)

func TestTally(t *testing.T) {
	var seen []Progress
	c := newTally(func(p Progress) { seen = append(seen, p) })
	c.add("early", 0) // nothing is expected yet
	c.expect(100)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 25 {
				c.add("x", 1)
			}
		})
	}
	wg.Wait()
	c.add("more than expected", 50)
	if len(seen) != 101 {
		t.Fatalf("shown %d times", len(seen))
	}
	for i, p := range seen[:100] {
		if want := float64(i+1) / 100; p.Done != want || p.Stage != "x" {
			t.Errorf("%d: %+v", i, p)
		}
	}
	if last := seen[100]; last.Done != 1 || last.Left != 0 || last.Stage != "more than expected" {
		t.Errorf("%+v", last)
	}
}
