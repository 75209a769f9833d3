package test

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/overlapd/overlapd/models"
)

// loops returns a model that counts to its input: with a number that is large
// enough, one operator does not end for years.
func loops() message {
	scalar := func(name string, t models.DataType) message {
		return models.AppendValueInfo(nil, name, models.TensorType(t))
	}
	one := models.TensorType(models.Float32, models.Dim{Value: 1})
	body := message(nil).text(2, "body").
		message(11, scalar("i", models.Int64)).message(11, scalar("c", models.Bool)).message(11, models.AppendValueInfo(nil, "v", one)).
		message(12, scalar("c2", models.Bool)).message(12, models.AppendValueInfo(nil, "v2", one)).
		message(1, node("Identity", []string{"c"}, "c2")).message(1, node("Add", []string{"v", "one"}, "v2"))
	constant := func(value float32) func(int) float32 { return func(int) float32 { return value } }
	return model(graph([]message{
		node("Cast", []string{"X"}, "trips", message(nil).text(1, "to").number(3, int64(models.Int64)).number(20, 2)),
		node("Loop", []string{"trips", "", "zero"}, "Y", graphAttribute("body", body)),
	}, []message{floats("one", []int64{1}, constant(1)), floats("zero", []int64{1}, constant(0))}))
}

// endless is what a loop counts to that does not end.
const endless = 1 << 60

// A query that does not end, and a worker that was stopped, keep nobody else
// waiting. The query is answered at its deadline, its worker is replaced.
func TestSpanThatDoesNotEnd(t *testing.T) {
	// A worker that is stopped while it measures is replaced at once: then the query is answered.
	p := serve(t, config{worker: restarts, tables: "[profile]\non_start = false\n", services: []service{
		{"neighbour", "zoo:tiny_add", `target = "20s"`},
		{"loop", write(t, "loop.onnx", loops()), "target = \"5s\"\nbest_effort = true"},
	}})
	random := rand.New(rand.NewPCG(14, 1))
	neighbour := func(answers <-chan answer) {
		t.Helper()
		for range 5 {
			q := sum(random, 1)
			if err := checkSum(q, p.infer("neighbour", q)); err != nil {
				t.Errorf("the neighbour: %v", err)
			}
		}
		if len(answers) > 0 {
			t.Errorf("the query was answered before the neighbour's: %v", <-answers)
		}
	}
	again := func(worker int) {
		t.Helper()
		p.eventually("the next worker", func() bool { w := p.worker("loop"); return w != 0 && w != worker })
		if a := p.infer("loop", one(3)); a.Status != 200 || a.Outputs[0].Data[0] != 3 {
			t.Errorf("its next query: %v", a)
		}
	}
	again(0)

	worker := p.awaitWorker("loop")
	answers := p.runs("loop", one(endless))
	neighbour(answers)
	refusedWith(t, <-answers, 503, "deadline_passed")
	again(worker)

	worker = p.awaitWorker("loop")
	if err := sendSignal(worker, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.eventually("the worker to stop", func() bool { return stopped(t, worker) })
	answers = p.runs("loop", one(3))
	neighbour(answers)
	refusedWith(t, <-answers, 503, "deadline_passed")
	again(worker)

	// Nobody waits for a query whose client has left, so its worker goes as well.
	worker = p.awaitWorker("loop")
	client := p.abandon("loop", one(endless))
	p.eventually("the query to overrun", func() bool { return p.metrics()[`overlapd_overruns_total{service="loop"}`] > 2 })
	client.Close()
	again(worker)
	if m := p.metrics(); m[`overlapd_overruns_total{service="loop"}`] < 3 || m[`overlapd_overruns_total{service="neighbour"}`] != 0 {
		t.Errorf("overruns: %v of loop, %v of the neighbour", m[`overlapd_overruns_total{service="loop"}`], m[`overlapd_overruns_total{service="neighbour"}`])
	}
}
