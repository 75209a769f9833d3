package status

import (
	"slices"
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

// Whoever asks first, the shapes are there if anybody wants them, and else are not
// made.
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

// The instances of a GPU that is divided are told of as one, in the order of the
// configuration, and stay as they were.
func TestJoin(t *testing.T) {
	one := &Status{Device: "a", Rounds: 1, UpSeconds: 2, Services: []Service{{Name: "z"}, {Name: "x"}}, Loading: []Loading{{Service: "z"}}}
	two := &Status{Device: "b", Rounds: 2, UpSeconds: 1, Services: []Service{{Name: "y"}}}
	one.Plans.Made, two.Plans.Made = 1, 5
	one.Gain.OverlapNow, two.Gain.OverlapNow, two.Gain.MergeSeconds = 0.25, 0.5, 3
	all := Join([]*Status{one, two}, []string{"x", "y", "z"})
	var names []string
	for _, s := range all.Services {
		names = append(names, s.Name)
	}
	if !slices.Equal(names, []string{"x", "y", "z"}) || all.Device != "a; b" || all.Rounds != 3 || all.UpSeconds != 2 || all.Plans.Made != 6 ||
		all.Gain.OverlapNow != 0.75 || all.Gain.MergeSeconds != 3 || len(all.Loading) != 1 {
		t.Errorf("%+v", all)
	}
	if len(all.Instances) != 2 || all.Instances[1].Device != "b" || one.Rounds != 1 || one.Services[0].Name != "z" {
		t.Errorf("instances %+v of %+v", all.Instances, one)
	}
}
