package status

import (
	"sync"
	"testing"
	"testing/synctest"
)

// However many ask at once, one status is made for the first and one for the rest;
// without anybody none is.
func TestBoardIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Board
		var all sync.WaitGroup
		made, rounds := uint64(0), make(chan uint64, 100)
		ask := func() (woke int) {
			published, first := b.Want(false)
			if first {
				woke = 1
			}
			all.Go(func() {
				<-published
				rounds <- b.Latest().Rounds
			})
			return woke
		}
		publish := func(meanwhile func()) {
			b.Publish(func(bool) *Status {
				made++
				meanwhile()
				return &Status{Rounds: made}
			})
		}
		publish(func() { t.Error("nobody asked") })
		ask()
		woken := 0
		publish(func() {
			for range 50 { // while the first is made
				woken += ask()
			}
		})
		synctest.Wait()
		if len(rounds) != 1 || <-rounds != 1 || woken != 1 {
			t.Errorf("%d are told, %d of those that came later wake the goroutine", len(rounds)+1, woken)
		}
		publish(func() {})
		all.Wait()
		publish(func() { t.Error("all are told") })
		for range 50 {
			if n := <-rounds; n != 2 {
				t.Errorf("status %d, want the second", n)
			}
		}
	})
}

// The shapes are made if any reader wants them, whichever reader asks first, and otherwise
// not.
func TestShapesForWhoWantsThem(t *testing.T) {
	for _, asked := range [][]bool{{false, false}, {true, false}, {false, true}} {
		var b Board
		for _, shapes := range asked {
			b.Want(shapes)
		}
		b.Publish(func(shapes bool) *Status {
			if shapes != (asked[0] || asked[1]) {
				t.Errorf("asked %v: shapes %t", asked, shapes)
			}
			return nil
		})
	}
}
