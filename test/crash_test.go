package test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
)

// quotient returns a model of integers that real queries can break: it answers
// (A+C) / (B+1), looked up in a table of as many floats as numbers. A quotient that is
// not in the table is an error of ONNX Runtime. One that is no number of 32 bits, the
// least of them divided by -1, ends the worker: the processor sends it a signal. Queries
// choose how many quotients they ask for.
func quotient(numbers int) message {
	column := func(of models.DataType) models.Type {
		return models.TensorType(of, models.Dim{Value: -1, Name: "n"}, models.Dim{Value: -1, Name: "w"})
	}
	m := message(nil).text(2, "g").message(12, models.AppendValueInfo(nil, "Y", column(models.Float32)))
	for _, name := range []string{"A", "B", "C"} {
		m = m.message(11, models.AppendValueInfo(nil, name, column(models.Int32)))
	}
	return model(m.
		message(1, node("Add", []string{"A", "C"}, "sum")).
		message(1, node("Add", []string{"B", "one"}, "divisor")).
		message(1, node("Div", []string{"sum", "divisor"}, "quotient")).
		message(1, node("Gather", []string{"W", "quotient"}, "Y")).
		message(5, message(nil).number(1, 1).number(2, int64(models.Int32)).text(8, "one").text(9, "\x01\x00\x00\x00")).
		message(5, floats("W", []int64{int64(numbers)}, func(i int) float32 { return float32(i) })))
}

// numbers is how many quotients the model knows.
const numbers = 100

func quotientOf(a, b, c float64) query { return quotientsOf(1, a, b, c) }

// quotientsOf asks for the same quotient several times in a query.
func quotientsOf(n int, a, b, c float64) query {
	row := func(name string, v float64) tensor {
		return tensor{Name: name, Shape: []int64{1, int64(n)}, Datatype: "INT32", Data: slices.Repeat([]float64{v}, n)}
	}
	return query{Inputs: []tensor{row("A", a), row("B", b), row("C", c)}}
}

// good is answered with a, bad with an error, and deadly ends the worker, whichever
// n > 0 it is of.
func good(a int) query   { return quotientOf(float64(a), 0, 0) }
func bad() query         { return quotientOf(numbers, 0, 0) }
func deadly(n int) query { return quotientOf(math.MaxInt32+1-float64(n), -2, float64(n)) }

// checkQuotient returns what is wrong with the answer to a good query.
func checkQuotient(q query, a answer) error {
	if a.Err != nil || a.Status != 200 || len(a.Outputs) != 1 || len(a.Outputs[0].Data) != len(q.Inputs[0].Data) || a.Outputs[0].Data[0] != q.Inputs[0].Data[0] || a.ID != q.ID {
		return fmt.Errorf("asked %v, got %v", q, a)
	}
	return nil
}

// In batches with bad queries, merged or in series, each of these is answered with the
// error, and nobody else is.
func TestBadQueryInBatches(t *testing.T) {
	t.Parallel()
	path := write(t, "quotient.onnx", quotient(numbers))
	merged, series := service{"merged", path, "max_batch = 8"}, service{"series", path, "max_batch = 1"}
	p := serve(t, config{services: []service{merged, series}})
	for _, s := range []service{merged, series} {
		badQueries(t, p, s.name)
	}
	m := p.metrics()
	if m[`overlapd_queries_retried_total{service="merged"}`] == 0 {
		t.Errorf("no batch was merged with a bad query: %v", m)
	}
	if s := p.stats("series"); s.Executions != s.Queries {
		t.Errorf("%d queries ran in %d executions, each by itself", s.Queries, s.Executions)
	}
	if m[`overlapd_queries_retried_total{service="series"}`] == 0 {
		t.Log("the machine was too slow for a series with a bad query")
	}
	if n := p.count(func(e event) bool { return e.Message == "worker exited" }); n != 0 {
		t.Errorf("%d workers were lost", n)
	}
}

func badQueries(t *testing.T, p *process, service string) {
	const clients, each = 8, 40
	crowd(clients, func(client int, _ *rand.Rand) {
		for n := range each {
			if client == 0 {
				refusedWith(t, p.infer(service, bad()), 500, "model_failed")
				continue
			}
			q := good(n)
			if err := checkQuotient(q, p.infer(service, q)); err != nil {
				t.Errorf("a query that is innocent: %v", err)
				return
			}
		}
	})
}

// A query that ends its worker ends no second one: it is answered with the reason,
// not run again, and refused when it comes once more. The neighbour sees nothing of
// it, and queries that were merged with it are answered.
func TestCrashingQuery(t *testing.T) {
	t.Parallel()
	path := write(t, "quotient.onnx", quotient(numbers))
	p := serve(t, config{worker: restarts, services: []service{tinyAdd, {"quotient", path, "max_batch = 8"}}})
	p.crashes = true
	isLoss := func(e event) bool { return e.Message == "worker exited" }
	lost := func() int { return p.count(isLoss) }
	a := p.infer("quotient", deadly(7))
	refusedWith(t, a, 500, "worker_lost")
	if want := "SIGFPE: floating-point exception"; !strings.HasSuffix(a.Error, want) {
		t.Errorf("the client is told %q, not %q", a.Error, want)
	}
	p.await("the loss", isLoss)
	refusedWith(t, p.infer("quotient", deadly(7)), 500, "quarantined")
	if n := lost(); n != 1 {
		t.Errorf("%d workers were lost to one query", n)
	}
	const clients, each = 8, 12
	crowd(clients, func(client int, _ *rand.Rand) {
		for n := range each {
			switch q := good(n); {
			case client == 0:
				s := sum(rand.New(rand.NewPCG(1, uint64(n))), 1)
				if err := checkSum(s, p.infer("add", s)); err != nil {
					t.Errorf("the neighbour: %v", err)
				}
			case client == 1 && n%4 == 0:
				refusedWith(t, p.infer("quotient", deadly(10+n)), 500, "worker_lost")
			default:
				if err := checkQuotient(q, p.infer("quotient", q)); err != nil {
					t.Errorf("a query that is innocent: %v", err)
				}
			}
		}
	})
	// Merged with others, a query ends a worker twice: with them, and alone.
	if n := lost(); n > 1+2*each/4 {
		t.Errorf("%d workers were lost to %d queries", n, 1+each/4)
	}
	if status := p.health("/v2/health/ready"); status != 200 {
		t.Errorf("ready is %d", status)
	}
}

// failing returns a model that fails on every query, which only running it shows.
func failing() message {
	far := message(nil).number(1, 1).number(2, int64(models.Int64)).text(8, "far").text(9, "\x05\x00\x00\x00\x00\x00\x00\x00")
	return model(graph([]message{
		node("Cast", []string{"X"}, "whole", message(nil).text(1, "to").number(3, int64(models.Int64)).number(20, 2)),
		node("Add", []string{"whole", "far"}, "index"),
		node("Gather", []string{"W", "index"}, "Y"),
	}, []message{far, floats("W", []int64{1}, func(int) float32 { return 0 })}))
}

// A model that fails on all that it is warmed up with takes the place of no model
// that does not; in the place of one that does as well it may serve.
func TestReloadToAModelThatFails(t *testing.T) {
	t.Parallel()
	path := write(t, "model.onnx", scaled(2))
	other := write(t, "other.onnx", failing())
	p := serve(t, administered(t, config{services: []service{{name: "m", model: path}, {name: "other", model: other}}}))
	replaceFile(t, path, failing())
	p.reload(1, "FAILED m not replaced:", "fails on the zeros", "the old one keeps serving")
	if a := p.infer("m", one(1)); a.Status != 200 || a.Outputs[0].Data[0] != 4 {
		t.Errorf("the old model: %v", a)
	}
	replaceFile(t, other, append(failing(), message(nil).text(3, "newer")...))
	p.reload(1, "replaced other", "FAILED m not replaced:")
	refusedWith(t, p.infer("other", one(1)), 500, "model_failed")
	replaceFile(t, path, scaled(3))
	p.reload(0, "replaced m")
	if a := p.infer("m", one(1)); a.Status != 200 || a.Outputs[0].Data[0] != 9 {
		t.Errorf("the new model: %v", a)
	}
}
