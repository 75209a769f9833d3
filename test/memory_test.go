package test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

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
	type usage struct {
		resident    int64
		descriptors int
	}
	measure := func() map[string]usage {
		time.Sleep(200 * time.Millisecond) // for connections to be closed
		m := map[string]usage{}
		for name, pid := range map[string]int{"daemon": p.cmd.Process.Pid, "add": p.worker("add"), "bert": p.worker("bert")} {
			m[name] = usage{p.residentBytes(pid), p.descriptors(pid)}
		}
		return m
	}
	before := measure()
	round(fewer(240))
	const slackBytes, slackDescriptors = 96 << 20, 4
	for name, was := range before {
		p.eventually(fmt.Sprintf("%s to have no more than %d descriptors and %d bytes", name, was.descriptors+slackDescriptors, was.resident+slackBytes), func() bool {
			now := measure()[name]
			return now.resident <= was.resident+slackBytes && now.descriptors <= was.descriptors+slackDescriptors
		})
	}
}
