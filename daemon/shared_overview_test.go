package daemon

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
)

// However many clients ask at once, the scheduler goroutine is asked once for
// the first and once for the rest.
func TestOverviewsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sharedOverview
		var all sync.WaitGroup
		asked, answers := make(chan int), make(chan string, 100)
		n := 0
		ask := func() ([]byte, bool) {
			n++ // s holds it to one at a time
			asked <- n
			return []byte(strconv.Itoa(n)), n != 3
		}
		client := func() {
			all.Go(func() {
				text, ok := s.get(ask)
				if ok != (string(text) != "3") {
					t.Errorf("%s: %t", text, ok)
				}
				answers <- string(text)
			})
		}
		client()
		synctest.Wait() // the first is being asked
		for range 50 {
			client()
		}
		synctest.Wait()
		<-asked
		synctest.Wait() // the second is
		for range 20 {
			client()
		}
		synctest.Wait()
		<-asked
		<-asked
		all.Wait()
		close(answers)
		count := map[string]int{}
		for a := range answers {
			count[a]++
		}
		if n != 3 || count["1"] != 1 || count["2"] != 50 || count["3"] != 20 {
			t.Errorf("%d questions, answered %v", n, count)
		}
	})
}
