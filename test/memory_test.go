package test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// A worker takes no more than its service is given, whatever it is asked: by one
// operator, by all together, by a loop that keeps what it makes. It answers why, and its
// neighbour does not notice.
func TestMemoryOfAWorkerIsBounded(t *testing.T) {
	t.Parallel()
	const budget = 64 << 20
	slack := int64(48 << 20) // the inputs, the outputs, and what threads have
	if raced {
		slack *= racedTimes
	}
	p := serve(t, config{worker: "intermediate_bytes = \"64MiB\"\n", tables: "[profile]\non_start = false\n", services: []service{
		tinyAdd, {name: "conv", model: write(t, "conv.onnx", convolutions())}, {name: "loop", model: write(t, "loop.onnx", keeping())},
	}})
	good := func() {
		t.Helper()
		q, small, few := sum(rand.New(rand.NewPCG(1, 1)), 1), image(16), trips(3)
		a := p.infer("loop", few)
		if err := errors.Join(checkSum(q, p.infer("add", q)), checkImage(small, p.inferBinary("conv", small))); err != nil || a.Status != 200 || a.Outputs[0].Data[0] != 1 {
			t.Errorf("what fits: %v, %v", a, err)
		}
	}
	good()
	before := map[string]int64{}
	for _, name := range []string{"conv", "loop"} {
		before[name] = p.measured(p.awaitWorker(name)).resident
	}
	var most sync.Map
	watched := watch(func() {
		for name := range before {
			now, had := p.measured(p.worker(name)).resident, int64(0)
			if v, ok := most.Load(name); ok {
				had = v.(int64)
			}
			most.Store(name, max(now, had))
		}
	})
	for range 3 {
		for _, a := range []answer{p.inferBinary("conv", image(1024)), p.infer("loop", trips(1e9))} {
			refusedWith(t, a, 413, "too_large")
			says(t, a.Error, "worker.intermediate_bytes", "67108864")
		}
		good()
		if fits := image(512); checkImage(fits, p.inferBinary("conv", fits)) != nil {
			t.Error("an image that fits has no answer")
		}
	}
	watched()
	for name, was := range before {
		v, _ := most.Load(name)
		if now := v.(int64); now > was+budget+slack {
			t.Errorf("%s had %d MiB, before %d", name, now>>20, was>>20)
		}
	}
	if n := p.count(func(e event) bool { return e.Message == "worker exited" }); n != 0 {
		t.Errorf("%d workers were lost", n)
	}
}

// Queries that fit alone but not as one batch are answered, and the one among them that
// does not fit at all is told so.
func TestMergedQueriesTooLarge(t *testing.T) {
	t.Parallel()
	const side = 200 // 5 MiB of intermediates an image
	open := models.Dim{Value: -1, Name: "N"}
	m := convolutionsOf(open, models.Dim{Value: side}, models.Dim{Value: side})
	p := serve(t, config{worker: "intermediate_bytes = \"16MiB\"\n", tables: "[profile]\non_start = false\n", services: []service{
		{"images", write(t, "images.onnx", m), "max_batch = 8\ntarget = \"30s\""},
	}})
	// Whether merging pays is what was measured, which on a busy host may say no for a
	// while.
	p.eventually("queries to be merged", func() bool {
		crowd(12, func(client int, _ *rand.Rand) {
			for range fewer(6) {
				q := image(side)
				if client == 0 {
					q.Inputs[0].Shape[0], q.Inputs[0].Data = 4, slices.Repeat(q.Inputs[0].Data, 4)
				}
				a := p.inferBinary("images", q)
				// Beside another batch, memory may suffice later.
				for tries := 0; tries < 20 && isRefusal(a, 503, "no_memory"); tries++ {
					a = p.inferBinary("images", q)
				}
				if client == 0 && !isRefusal(a, 413, "too_large") && !isRefusal(a, 503, "no_memory") {
					t.Errorf("four at once: %v", a)
				}
				if client != 0 {
					if err := checkImage(q, a); err != nil {
						t.Error(err)
					}
				}
			}
		})
		return p.metrics()[`overlapd_queries_merged_total{service="images"}`] > 0
	})
}

// watch calls f again and again until what it returns is called.
func watch(f func()) (end func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			f()
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() { close(over); <-ended }
}

// Queries of ever other shapes leave nothing behind.
func TestMemoryStaysBounded(t *testing.T) {
	t.Parallel()
	p := serve(t, config{services: []service{
		{"add", "zoo:tiny_add", "max_batch = 8"}, {"bert", "zoo:tiny_bert", "max_batch = 4"},
	}})
	round := func(each int) {
		crowd(8, func(client int, random *rand.Rand) {
			for i := range each {
				if client%4 == 0 {
					n := 1 + random.Int64N(60)
					row := func(name string) tensor {
						return tensor{Name: name, Shape: []int64{1, n}, Datatype: "INT64", Data: make([]float64, n)}
					}
					a := p.inferBinary("bert", query{Inputs: []tensor{row("input_ids"), row("attention_mask"), row("token_type_ids")}})
					if a.Status != 200 {
						t.Errorf("bert: %v", a)
						return
					}
					continue
				}
				q := sum(random, 1+random.Int64N(60))
				if i%7 == 0 { // a refusal must free as much as an answer does
					q.Parameters = map[string]any{"timeout": 1}
				}
				if a := p.infer("add", q); a.Status != 200 && a.Status != 503 {
					t.Errorf("add: %v", a)
					return
				}
			}
		})
		client.CloseIdleConnections()
	}
	round(fewer(60))
	taken := func() map[string]usage {
		time.Sleep(200 * time.Millisecond) // for connections to be closed
		m := map[string]usage{}
		for name, pid := range map[string]int{"daemon": p.cmd.Process.Pid, "add": p.awaitWorker("add"), "bert": p.awaitWorker("bert")} {
			m[name] = p.measured(pid)
		}
		return m
	}
	before := taken()
	round(fewer(240))
	const slackBytes, slackDescriptors = 96 << 20, 4
	for name, was := range before {
		p.eventually(fmt.Sprintf("%s to have no more than %d descriptors and %d bytes", name, was.descriptors+slackDescriptors, was.resident+slackBytes), func() bool {
			now := taken()[name]
			return now.resident <= was.resident+slackBytes && now.descriptors <= was.descriptors+slackDescriptors
		})
	}
}
