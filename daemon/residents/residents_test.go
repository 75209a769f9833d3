package residents

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/overlap/residency"
)

// A query with 1.3 times the predicted load left waits. One with less is refused at once, and told when
// to come back: its model is loaded all the same, and is there by then.
func TestWhoWaits(t *testing.T) {
	for _, of := range []struct {
		name  string
		slack time.Duration // besides 1.3 times the prediction
		waits bool
	}{{"just enough", time.Microsecond, true}, {"too little", -time.Microsecond, false}} {
		t.Run(of.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 1, 1, nil)
				defer f.stop()
				predicted := f.expect(&f.config.Services[0], 0).Load
				f.mu.took["m0"] = predicted
				began := time.Now()
				err := f.askWithin("m0", time.Duration(1.3*float64(predicted))+of.slack)
				if of.waits {
					if took := time.Since(began); err != nil || took != predicted {
						t.Errorf("an answer after %v of %v: %v", took, predicted, err)
					}
					return
				}
				if f.says(err, query.ReasonLoading, "try again in"); time.Since(began) != 0 {
					t.Errorf("it was refused after %v", time.Since(began))
				}
				if err.RetryAfter != predicted {
					t.Errorf("retry after %v, want %v", err.RetryAfter, predicted)
				}
				time.Sleep(err.RetryAfter + time.Millisecond)
				if err := f.ask("m0"); err != nil || time.Since(began) != predicted+time.Millisecond {
					t.Errorf("it came back: %v", err)
				}
			})
		})
	}
}

// The prediction comes from earlier loads, and counts the loads that come first.
func TestPredictionLearns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 3, 3, nil)
		defer f.stop()
		const took = 20 * time.Second // far more than was expected
		f.mu.took["m0"] = took
		for range 8 { // the prediction moves half of the way each time
			if err := f.ask("m0"); err != nil {
				t.Fatal(err)
			}
			if err := f.Unload(t.Context(), "m0"); err != nil {
				t.Fatal(err)
			}
		}
		err := f.askWithin("m0", took)
		if f.wants(err, query.ReasonLoading); err.RetryAfter < took*9/10 || err.RetryAfter > took*11/10 {
			t.Errorf("retry after %v, a load takes %v", err.RetryAfter, took)
		}
		if err := f.askWithin("m1", 19*time.Second); err == nil || err.RetryAfter < took*9/10 {
			t.Errorf("behind another load: %v", err)
		}
	})
}

// Under random load a model with unanswered queries is never evicted, nor one that stays, and every query
// is answered or told why not. All seeds together evict often.
func TestNeverEvicted(t *testing.T) {
	evictions := uint64(0)
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			const services, room = 12, 4
			f := newFake(t, services, room, func(c *config.Config) { c.Services[5].Keep = true })
			defer f.stop()
			held := map[string][]time.Time{} // since when queries run
			var mu sync.Mutex
			f.evicting = func(s *query.Service) {
				mu.Lock()
				defer mu.Unlock()
				if s.Name == "m5" {
					t.Error("a model was evicted that stays")
				}
				for _, since := range held[s.Name] {
					if ran := time.Since(since); ran > 0 {
						t.Errorf("seed %d: %s was evicted while a query of it ran for %v", seed, s.Name, ran)
					}
				}
			}
			var all sync.WaitGroup
			for range 600 {
				time.Sleep(time.Duration(random.ExpFloat64() * float64(30*time.Millisecond)))
				name := fmt.Sprint("m", random.IntN(services))
				runs := time.Duration(random.ExpFloat64() * float64(20*time.Millisecond))
				if random.IntN(20) == 0 {
					runs = time.Duration(random.IntN(5)) * time.Second
				}
				all.Go(func() {
					err := f.run(name, nil, func() {
						since := time.Now()
						mu.Lock()
						held[name] = append(held[name], since)
						mu.Unlock()
						time.Sleep(runs)
						mu.Lock()
						i := slices.Index(held[name], since)
						held[name] = slices.Delete(held[name], i, i+1)
						mu.Unlock()
					})
					if err != nil && (err.Reason != query.ReasonLoading || err.RetryAfter <= 0) {
						t.Errorf("seed %d: %s: %v", seed, name, err)
					}
				})
				s, taken := f.shown(), int64(0)
				for i := range s.Services {
					if s.Services[i].State != residency.Waiting.String() { // else its memory is not free yet
						taken += s.Services[i].MemoryBytes
					}
				}
				if taken > s.Memory.LimitBytes {
					t.Errorf("seed %d: %d of %d bytes are taken", seed, taken, s.Memory.LimitBytes)
				}
			}
			all.Wait()
			evictions += f.shown().Memory.Evictions
		})
	}
	if evictions < 1000 {
		t.Errorf("only %d evictions", evictions)
	}
}

// A load that fails is answered with the reason, and tried again after a second, then two, at most a minute later, however
// many queries come. The first load that succeeds ends that.
func TestLoadThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2, 2, nil)
		defer f.stop()
		f.fails("m0", "the file is damaged")
		began, tries := time.Now(), []time.Duration{}
		for n := 0; time.Since(began) < 10*time.Minute; time.Sleep(50 * time.Millisecond) {
			err := f.ask("m0")
			f.says(err, query.ReasonGivenUp, "the file is damaged")
			if now := f.begun("m0"); now > n {
				n, tries = now, append(tries, time.Since(began))
			}
			if err.RetryAfter <= 0 {
				t.Errorf("retry after %v", err.RetryAfter)
			}
		}
		for i := 1; i < len(tries); i++ {
			least := min(time.Second<<(i-1), time.Minute)
			if after := tries[i] - tries[i-1]; after < least || after > least+time.Second {
				t.Errorf("try %d came %v after the one before, want %v", i, after, least)
			}
		}
		if err := f.ask("m1"); err != nil {
			t.Errorf("the neighbour: %v", err)
		}
		if m := f.shown().Memory; m.Failures != uint64(len(tries)) || m.UsedBytes != modelBytes {
			t.Errorf("%d tries: %+v", len(tries), m)
		}
		f.fails("m0", "")
		time.Sleep(time.Minute)
		if err := f.ask("m0"); err != nil {
			t.Errorf("a repaired model: %v", err)
		}
	})
}

// Many callers of one cold model cause one load, and no more of them wait than the queue has places.
func TestOneLoadForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, places = 500, 400
		f := newFake(t, 1, 1, func(c *config.Config) { c.Services[0].QueueLimit = places })
		defer f.stop()
		var all sync.WaitGroup
		errs := make([]*query.Error, callers)
		for i := range errs {
			all.Go(func() { errs[i] = f.ask("m0") })
		}
		for range 3 {
			all.Go(func() {
				if err := f.Set.Load(t.Context(), "m0"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		refused := 0
		for _, err := range errs {
			if err != nil {
				f.wants(err, query.ReasonQueueFull)
				refused++
			}
		}
		if n := f.begun("m0"); n != 1 || refused != callers-places {
			t.Errorf("%d loads, %d refused", n, refused)
		}
	})
}

// A client that leaves ends its wait, and the load goes on.
func TestClientThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, 1, nil)
		defer f.stop()
		left := make(chan struct{})
		time.AfterFunc(loadTime/2, func() { close(left) })
		f.wants(f.run("m0", left, func() {}), query.ReasonCancelled)
		time.Sleep(loadTime)
		if f.state("m0") != "in memory" {
			t.Errorf("the model is %s", f.state("m0"))
		}
		ctx, leave := context.WithTimeout(t.Context(), loadTime/2)
		defer leave()
		if err := f.Unload(t.Context(), "m0"); err != nil {
			t.Error(err)
		}
		f.wants(f.Set.Load(ctx, "m0"), query.ReasonCancelled)
	})
}

// A daemon that stops while models load and leave answers those that wait, and no goroutine is left.
func TestStopMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 3, 3, nil)
		f.mu.took["m1"] = time.Hour
		if err := f.ask("m0"); err != nil {
			t.Fatal(err)
		}
		busy := f.Service([]byte("m0"))
		busy.Hold()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { f.wants(f.ask("m1"), query.ReasonDraining) })
		}
		time.Sleep(time.Millisecond) // m2 is behind m1
		for range 4 {
			all.Go(func() { f.wants(f.Unload(t.Context(), "m0"), query.ReasonDraining) })
			all.Go(func() { f.wants(f.Set.Load(t.Context(), "m2"), query.ReasonDraining) })
		}
		time.Sleep(time.Second)
		f.end()
		all.Wait()
		busy.LetGo()
		f.Running.Wait()
	})
}

// byRequest has models loaded by request.
func byRequest(c *config.Config) { c.Models.Load = config.LoadByRequest }

// By request, models are loaded while there is memory, and stay until they are unloaded. Requests wait
// for what is under way, also if it is the opposite.
func TestByRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 4, 2, func(c *config.Config) { byRequest(c); c.Services[3].Keep = true })
		defer f.stop()
		ctx := t.Context()
		for _, err := range []*query.Error{f.Set.Load(ctx, "m3"), f.Set.Load(ctx, "m0"), f.Set.Load(ctx, "m0")} {
			if err != nil {
				t.Error(err)
			}
		}
		f.says(f.Set.Load(ctx, "m1"), query.ReasonNoMemory, "models take 96 of 96 MiB")
		f.says(f.Unload(ctx, "m3"), query.ReasonInvalid, "keep = true")
		f.wants(f.Unload(ctx, "none"), query.ReasonNotFound)
		if s := f.Service([]byte("m1")); s.Asleep.Wake(s, time.Now(), nil).Reason != query.ReasonUnloaded {
			t.Error("a query woke a model")
		}
		if err := f.Unload(ctx, "m0"); err != nil {
			t.Error(err)
		}
		var all sync.WaitGroup
		opposite := func(name string, first, second func(context.Context, string) *query.Error) {
			t.Helper()
			all.Go(func() {
				if err := first(ctx, name); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
			all.Go(func() {
				if err := second(ctx, name); err != nil {
					t.Error(err)
				}
			})
			all.Wait()
		}
		if opposite("m1", f.Set.Load, f.Unload); f.state("m1") != "on disk" {
			t.Errorf("m1 is %s", f.state("m1"))
		}
		if err := f.Set.Load(ctx, "m1"); err != nil {
			t.Error(err)
		}
		busy := f.Service([]byte("m1"))
		busy.Hold()
		time.AfterFunc(time.Second, busy.LetGo)
		if opposite("m1", f.Unload, f.Set.Load); f.state("m1") != "in memory" {
			t.Errorf("m1 is %s", f.state("m1"))
		}
	})
}

// An unload ends the wait of queries whose model has not begun to load: they ask again, and it is loaded
// for them.
func TestUnloadOfWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2, 2, nil)
		defer f.stop()
		f.mu.took["m0"] = time.Second
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() {
				if err := f.ask(fmt.Sprint("m", i)); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		if f.state("m1") != residency.Waiting.String() {
			t.Fatalf("m1 is %s", f.state("m1"))
		}
		if err := f.Unload(t.Context(), "m1"); err != nil {
			t.Error(err)
		}
		all.Wait()
	})
}

// A reload that removes a service ends the wait for its model.
func TestRemovedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2, 2, nil)
		defer f.stop()
		var all sync.WaitGroup
		all.Go(func() {
			if err := f.ask("m0"); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Millisecond)
		all.Go(func() { f.wants(f.ask("m1"), query.ReasonNotFound) })
		all.Go(func() { f.wants(f.Set.Load(t.Context(), "m1"), query.ReasonNotFound) })
		time.Sleep(time.Millisecond)
		f.Set.Forget("m1")
		f.change(func(c *config.Config) { c.Services = c.Services[:1] })
		all.Wait()
		if n := f.begun("m1"); n != 0 {
			t.Errorf("%d loads of a removed model", n)
		}
	})
}

// hour is a query that takes an hour.
func hour() { time.Sleep(time.Hour) }

// Queries of any length wait no longer than there is hope: if no memory becomes free for their model,
// they ask again, and are refused.
func TestNoMemoryBecomesFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 5, 3, func(c *config.Config) { c.Services[3].BestEffort = true })
		defer f.stop()
		f.mu.took["m4"] = 2 * time.Second
		var all sync.WaitGroup
		begin := func(name string, during func()) {
			all.Go(func() {
				if err := f.run(name, nil, during); err != nil {
					t.Errorf("asking %s failed: %v", name, err)
				}
			})
			time.Sleep(lookEvery / 2)
		}
		for _, name := range []string{"m0", "m1"} {
			begin(name, func() {})
		}
		begin("m4", hour)
		begin("m2", hour) // in the place of m0
		left, told := make(chan struct{}), make(chan struct{})
		all.Go(func() { // in the place of m1
			f.wants(f.run("m3", left, func() {}), query.ReasonLoading)
			close(told)
		})
		time.Sleep(time.Millisecond)
		if f.state("m3") != residency.Waiting.String() {
			t.Fatalf("m3 is %s", f.state("m3"))
		}
		begin("m1", hour)
		select {
		case <-told:
		case <-time.After(time.Minute):
			t.Error("it waits although there is no hope")
			close(left)
		}
		all.Wait()
	})
}

// A model that was loaded for a query stays until the query has reached it, for a moment.
func TestQueryReachesItsModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2, 1, nil)
		defer f.stop()
		s := f.Service([]byte("m0"))
		if err := s.Asleep.Wake(s, time.Now(), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		f.wants(f.ask("m1"), query.ReasonLoading)
		if f.state("m0") != "in memory" {
			t.Errorf("m0 is %s", f.state("m0"))
		}
		time.Sleep(3 * lookEvery) // its client is gone
		if err := f.ask("m1"); err != nil {
			t.Error(err)
		}
	})
}

// A query for a model that is just leaving waits as any other, if it can, and has it loaded again.
func TestQueryWhileItsModelLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, 1, nil)
		defer f.stop()
		var all sync.WaitGroup
		for range 2 {
			if err := f.ask("m0"); err != nil {
				t.Fatal(err)
			}
		}
		all.Go(func() {
			if err := f.run("m0", nil, func() { time.Sleep(time.Second) }); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Millisecond)
		all.Go(func() {
			if err := f.Unload(t.Context(), "m0"); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Millisecond)
		f.wants(f.askWithin("m0", time.Millisecond), query.ReasonLoading)
		if err := f.ask("m0"); err != nil || f.begun("m0") != 2 {
			t.Errorf("got %v after %d loads", err, f.begun("m0"))
		}
		all.Wait()
	})
}

// A model goes for a request as soon as its last query is answered.
func TestLoadAfterQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2, 1, nil)
		defer f.stop()
		if err := f.ask("m0"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := f.run("m0", nil, func() { time.Sleep(lookEvery + time.Microsecond) }); err != nil {
			t.Fatal(err)
		}
		if err := f.Set.Load(t.Context(), "m1"); err != nil {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// A query is counted once, however often its model comes and goes: one of which there were many queries
// long ago is worth less than those that are asked for now.
func TestQueriesAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// No query can wait for a load, so each of an absent model is lost.
		f := newFake(t, 3, 2, func(c *config.Config) {
			for i := range c.Services {
				c.Services[i].Target = time.Millisecond
			}
		})
		defer f.stop()
		load := func(name string, queries int, every time.Duration) {
			t.Helper()
			if err := f.Set.Load(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			for range queries {
				if err := f.ask(name); err != nil {
					t.Fatal(err)
				}
				time.Sleep(every)
			}
			time.Sleep(time.Minute)
		}
		load("m0", 10_000, time.Millisecond)
		if err := f.Unload(t.Context(), "m0"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Hour)
		load("m1", 600, time.Second)
		load("m0", 1, 0)
		load("m2", 1, 0) // one of the others goes
		if f.state("m1") != "in memory" || f.state("m0") != "on disk" {
			t.Errorf("m0 is %s, m1 %s", f.state("m0"), f.state("m1"))
		}
	})
}

// What models take is measured: one that grows is counted, and the least valuable goes if there is no
// memory for it any more.
func TestModelThatGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 3, 3, nil)
		defer f.stop()
		for i := range 3 {
			if err := f.ask(fmt.Sprint("m", i)); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			if err := f.ask("m1"); err != nil {
				t.Fatal(err)
			}
		}
		pid := int(f.Service([]byte("m1")).ID) + 1
		f.mu.Lock()
		f.mu.bytes[pid] = 2 * modelBytes
		f.mu.Unlock()
		time.Sleep(2 * weighEvery)
		s := f.shown()
		if s.Memory.UsedBytes != 3*modelBytes || s.Memory.Evictions != 1 || s.Services[1].MemoryBytes != 2*modelBytes {
			t.Errorf("after a model has grown: %+v, %+v", s.Memory, s.Services)
		}
	})
}

// A model that takes more than all memory answers the queries that waited for it, goes, and is tried again
// after a minute.
func TestModelLargerThanMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, 1, nil)
		defer f.stop()
		takes := func(bytes int64) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.mu.bytes[1] = bytes
		}
		takes(2 * modelBytes)
		if err := f.ask("m0"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lookEvery)
		f.says(f.ask("m0"), query.ReasonNoMemory, "takes 96 MiB, but there are 48 MiB for all models: raise memory")
		takes(modelBytes)
		time.Sleep(reconsiderAfter)
		f.wants(f.ask("m0"), query.ReasonNoMemory)
		if err := f.ask("m0"); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * lookEvery)
		if f.state("m0") != residency.InMemory.String() {
			t.Errorf("m0 is %s", f.state("m0"))
		}
	})
}
