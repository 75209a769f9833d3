package test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
)

// rows returns a tensor of rows of width numbers below 1000.
func rows(name, datatype string, random *rand.Rand, size int64, rest ...int64) tensor {
	n := size
	for _, d := range rest {
		n *= d
	}
	t := tensor{Name: name, Shape: append([]int64{size}, rest...), Datatype: datatype}
	for range n {
		v := float64(random.IntN(1000))
		if datatype == "FP32" {
			v = v/500 - 1
		}
		t.Data = append(t.Data, float64(float32(v)))
	}
	return t
}

// sum is a query of tiny_add.
func sum(random *rand.Rand, size int64) query {
	return query{Inputs: []tensor{rows("INPUT0", "INT32", random, size, 16), rows("INPUT1", "INT32", random, size, 16)}}
}

// checkSum tells what is wrong with an answer to a query of sum.
func checkSum(q query, a answer) error {
	if a.Err != nil || a.Status != 200 || a.ID != q.ID || len(a.Outputs) != 2 {
		return fmt.Errorf("query %q: %v, id %q, %d outputs", q.ID, a, a.ID, len(a.Outputs))
	}
	plus, minus := a.Outputs[0].Data, a.Outputs[1].Data
	for i, x := range q.Inputs[0].Data {
		y := q.Inputs[1].Data[i]
		if i >= len(plus) || i >= len(minus) || plus[i] != x+y || minus[i] != x-y {
			return fmt.Errorf("query %q: wrong at %d of %v", q.ID, i, a.Outputs)
		}
	}
	return nil
}

// crowd runs f from many goroutines at once and waits.
func crowd(clients int, f func(client int, random *rand.Rand)) {
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() { f(c, rand.New(rand.NewPCG(1, uint64(c)))) })
	}
	all.Wait()
}

// fewer returns n, or less in a short run or under the race detector.
func fewer(n int) int {
	if testing.Short() || raced {
		return max(n/4, 1)
	}
	return n
}

var tinyAdd = service{name: "add", model: "zoo:tiny_add"}

// Two services at once, JSON and binary: everybody gets the answer to the
// question that they asked.
func TestAnswersAreRight(t *testing.T) {
	t.Parallel()
	merged := tinyAdd
	merged.name, merged.lines = "merged", "max_batch = 8"
	p := serve(t, config{services: []service{tinyAdd, merged}})
	const clients = 16
	each := fewer(40) / 2 * 2
	crowd(clients, func(client int, random *rand.Rand) {
		for i := range each {
			q := sum(random, 1+random.Int64N(3))
			q.ID = fmt.Sprintf("%d/%d", client, i)
			ask := p.infer
			if i%2 == 0 {
				ask = p.inferBinary
			}
			for _, name := range []string{"add", "merged"} {
				if err := checkSum(q, ask(name, q)); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		}
	})
	for _, name := range []string{"add", "merged"} {
		if s := p.stats(name); s.Times["success"].Count != clients*each || s.Times["fail"].Count != 0 {
			t.Errorf("statistics of %s: %+v", name, s)
		}
	}
}

// Merging must not change an answer, nor whose it is.
func TestMergingChangesNoAnswer(t *testing.T) {
	t.Parallel()
	for name, input := range map[string]func(random *rand.Rand) tensor{
		"tiny_mlp": func(r *rand.Rand) tensor { return rows("input", "FP32", r, 1+r.Int64N(2), 16) },
		"tiny_cnn": func(r *rand.Rand) tensor { return rows("input", "FP32", r, 1, 3, 32, 32) },
	} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, config{services: []service{
				{"alone", "zoo:" + name, "max_batch = 1"},
				{"merged", "zoo:" + name, "max_batch = 8"},
			}})
			each := fewer(20)
			crowd(12, func(client int, random *rand.Rand) {
				for range each {
					q := query{Inputs: []tensor{input(random)}}
					want, got := p.inferBinary("alone", q), p.inferBinary("merged", q)
					if err := sameOutputs(want, got); err != nil {
						t.Error(err)
						return
					}
				}
			})
			// Whether any batch has two members depends on the moment; make
			// it sure.
			for range 20 {
				if s := p.stats("merged"); s.Executions < s.Times["success"].Count {
					return
				}
				crowd(32, func(_ int, random *rand.Rand) { p.inferBinary("merged", query{Inputs: []tensor{input(random)}}) })
			}
			t.Error("nothing was ever merged")
		})
	}
}

func sameOutputs(want, got answer) error {
	if want.Status != 200 || got.Status != 200 || len(want.Outputs) != 1 || len(got.Outputs) != 1 {
		return fmt.Errorf("alone %v, merged %v", want, got)
	}
	w, g := want.Outputs[0].Data, got.Outputs[0].Data
	if len(w) == 0 || len(w) != len(g) {
		return fmt.Errorf("%d numbers alone, %d merged", len(w), len(g))
	}
	for i := range w {
		if math.Abs(w[i]-g[i]) > 1e-4*max(1, math.Abs(w[i])) || math.IsNaN(g[i]) {
			return fmt.Errorf("number %d is %v alone and %v merged", i, w[i], g[i])
		}
	}
	return nil
}
