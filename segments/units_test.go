package segments

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// TestConcurrentRuns runs batches of mixed sizes at once, each in spans on changing shares
// of the units, some of which are stopped, and compares their outputs with those of the whole
// model. Layouts are learned meanwhile.
func TestConcurrentRuns(t *testing.T) {
	const goroutines = 4
	for _, name := range []string{"tiny_cnn", "tiny_bert"} {
		t.Run(name, func(t *testing.T) {
			path, err := zoo.Build(name, t.TempDir(), 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			env := openEnvWith(t, ort.EnvOptions{IntraThreads: 2})
			m, w := openCut(t, env, Config{Path: path, Units: goroutines}), openWhole(t, env, path)
			var queries [][]wire.QueryTensors
			var want []collect
			random := rand.New(rand.NewPCG(1, 1))
			for _, sizes := range [][]int64{{1}, {3}, {1, 2}, {2, 2, 1}} {
				var batch []wire.QueryTensors
				for _, size := range sizes {
					q := randomQuery(t, m.Model(), size, 8, random)
					defer thaw(q)
					batch = append(batch, q)
				}
				outputs, err := w.run(batch)
				if err != nil {
					t.Fatal(err)
				}
				queries, want = append(queries, batch), append(want, outputs)
			}
			var left atomic.Int64
			left.Store(1000)
			var all sync.WaitGroup
			for g := range goroutines {
				all.Go(func() {
					random := rand.New(rand.NewPCG(2, uint64(g)))
					for left.Add(-1) >= 0 {
						kind := random.IntN(len(queries))
						got, err := inSpans(m, models.BatchID(g), queries[kind], random)
						if err == nil {
							err = compare(got, want[kind])
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// inSpans runs a batch in random spans on random shares.
func inSpans(m *CutModel, id models.BatchID, queries []wire.QueryTensors, random *rand.Rand) (got collect, err error) {
	if err := m.Start(id, queries); err != nil {
		return nil, err
	}
	defer m.Release(id)
	for at, end := 0, len(m.loaded.sessions); at < end; {
		stop := uint32(0)
		if random.IntN(8) == 0 {
			stop = 1
		}
		if at, err = m.RunShare(id, at, at+1+random.IntN(end-at), random.IntN(4), &stop); err != nil {
			return nil, err
		}
	}
	err = m.Finish(id, got.take)
	return got, err
}

// TestBudgetOfConcurrentRuns has batches that fit run beside batches that take more than the
// budget. The limit holds for all of them together, and each failure is that of the budget.
func TestBudgetOfConcurrentRuns(t *testing.T) {
	const budget = 4 << 20
	env := openEnv(t)
	m := openCut(t, env, Config{Path: convolutions().write(t), IntermediateBytes: budget, Units: 2})
	fits, large := images(t, 32), images(t, 512)
	defer thaw(fits)
	defer thaw(large)
	want, err := runAll(m, 1, fits)
	if err != nil {
		t.Fatal(err)
	}
	most := env.ArenaBytes() + budget
	var ended atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		defer ended.Store(true)
		for range 100 {
			if _, err := runShare(m, 2, 1, large); !errors.Is(err, wire.ErrMemory) {
				t.Errorf("a large batch: %v", err)
				return
			}
		}
	})
	all.Go(func() {
		for !ended.Load() {
			got, err := runShare(m, 3, 1, fits)
			if err == nil {
				err = compare(got, want)
			}
			if err != nil && !errors.Is(err, wire.ErrMemory) {
				t.Errorf("a small batch beside: %v", err)
				return
			}
			if n := env.ArenaBytes(); n > most {
				t.Errorf("%d bytes are in use, beyond the budget by %d", n, n-most)
			}
		}
	})
	all.Wait()
	if got, err := runAll(m, 1, fits); err != nil || compare(got, want) != nil {
		t.Errorf("what fits, afterwards: %v", err)
	}
	if n := m.IntermediateBytes(); n != m.pool.used {
		t.Errorf("%d bytes are accounted for, of which frames take %d", n, m.pool.used)
	}
}

// TestSharesThatHavePools has a finely cut model make no pools beyond the limit.
func TestSharesThatHavePools(t *testing.T) {
	for _, c := range []struct {
		units, pieces int
		ladder        []int
	}{
		{1, 10, nil}, {2, 10, nil}, {8, 10, []int{2, 4}}, {6, 10, []int{2, 4}}, {8, 200, []int{2}}, {8, 300, nil}, {64, 1000, nil},
	} {
		var s shares
		s.plan(c.units, c.pieces)
		if !slices.Equal(s.ladder, c.ladder) {
			t.Errorf("%d units, %d pieces: pools for shares %v, expected %v", c.units, c.pieces, s.ladder, c.ladder)
		}
		for share, want := range map[int]int{0: 0, 1: min(1, c.units-1), c.units: 0, c.units + 1: 0} {
			if got := s.of(share); got != want {
				t.Errorf("%d units: a span on %d runs on %d, expected %d", c.units, share, got, want)
			}
		}
	}
}
