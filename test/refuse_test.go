package test

import (
	"math/rand/v2"
	"testing"
)

func TestDeadlineOfARequest(t *testing.T) {
	t.Parallel()
	p := serve(t, config{services: []service{tinyAdd}})
	q := sum(rand.New(rand.NewPCG(1, 1)), 1)
	q.Parameters = map[string]any{"timeout": 1}
	for range 20 {
		refusedWith(t, p.infer("add", q), 503, "deadline_passed", "cannot_finish")
	}
	q.Parameters = map[string]any{"timeout": 50_000_000, "priority": 1}
	if err := checkSum(q, p.infer("add", q)); err != nil {
		t.Error(err)
	}
	if s := p.stats("add"); s.Times["fail"].Count != 20 || s.Times["success"].Count != 1 {
		t.Errorf("statistics: %+v", s)
	}
}

// The shared memory of a service is bounded; what does not fit is refused,
// and what is freed can be used again.
func TestInputsOverTheSharedMemory(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	p := serve(t, config{services: []service{{"add", "zoo:tiny_add", "max_query_batch = 4096"}}})
	large := sum(random, 4096) // 512 KiB
	crowd(16, func(_ int, random *rand.Rand) {
		for range fewer(8) {
			a := p.inferBinary("add", large)
			if err := checkSum(large, a); err != nil && !isRefusal(a, 503, "no_memory") {
				t.Error(err)
			}
		}
	})
	refusedWith(t, p.inferBinary("add", sum(random, 5000)), 400, "invalid")
	if err := checkSum(large, p.inferBinary("add", large)); err != nil {
		t.Error(err)
	}
}

// What a model cannot compute is told to who asked, and to nobody else.
func TestModelThatFailsAtRunTime(t *testing.T) {
	t.Parallel()
	p := serve(t, config{services: []service{{"bert", "zoo:tiny_bert", "max_batch = 4"}}})
	tokens := func(id float64) query {
		row := func(name string, v float64) tensor {
			return tensor{Name: name, Shape: []int64{1, 4}, Datatype: "INT64", Data: []float64{v, 1, 1, 1}}
		}
		return query{Inputs: []tensor{row("input_ids", id), row("attention_mask", 1), row("token_type_ids", 0)}}
	}
	for range 10 {
		a := p.infer("bert", tokens(1e9))
		refusedWith(t, a, 500, "model_failed")
		says(t, a.Error, "Gather", "out of")
		if a := p.infer("bert", tokens(3)); a.Status != 200 || len(a.Outputs) != 2 {
			t.Fatalf("a good query after a bad one: %v", a)
		}
	}
	if n := p.count(func(e event) bool { return e.Message == "worker exited" }); n != 0 {
		t.Errorf("%d workers were lost", n)
	}
	p.alive()
}
