package test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/overlapd/overlapd/models"
)

// quotient returns a model of integers that real queries can break: it answers
// A / (B+1), looked up in a table of as many floats as numbers. A quotient that is
// not in the table is an error of ONNX Runtime; a B of -1 divides by zero, at which
// the processor ends the worker.
func quotient(numbers int) message {
	column := models.Tensor(models.Int64, models.Dim{Value: -1, Name: "n"}, models.Dim{Value: 1})
	answer := models.Tensor(models.Float32, models.Dim{Value: -1, Name: "n"}, models.Dim{Value: 1})
	one := message(nil).number(1, 1).number(2, int64(models.Int64)).text(8, "One").text(9, "\x01\x00\x00\x00\x00\x00\x00\x00")
	return model(message(nil).text(2, "g").
		message(11, models.AppendValueInfo(nil, "A", column)).message(11, models.AppendValueInfo(nil, "B", column)).
		message(12, models.AppendValueInfo(nil, "Y", answer)).
		message(1, node("Add", []string{"B", "One"}, "C")).
		message(1, node("Div", []string{"A", "C"}, "Q")).
		message(1, node("Gather", []string{"W", "Q"}, "Y")).
		message(5, one).
		message(5, floats("W", []int64{int64(numbers)}, func(i int) float32 { return float32(i) })))
}

// The sorts of queries of the model: numbers that are in its table, one that is
// not, and one that ends the worker.
const numbers = 100

func quotientOf(a, b float64) query {
	return query{Inputs: []tensor{
		{Name: "A", Shape: []int64{1, 1}, Datatype: "INT64", Data: []float64{a}},
		{Name: "B", Shape: []int64{1, 1}, Datatype: "INT64", Data: []float64{b}},
	}}
}

func good(a int) query   { return quotientOf(float64(a), 0) }
func bad() query         { return quotientOf(numbers, 0) }
func deadly(a int) query { return quotientOf(float64(a), -1) }

// checkQuotient returns what is wrong with the answer to a good query.
func checkQuotient(q query, a answer) error {
	if a.Err != nil || a.Status != 200 || len(a.Outputs) != 1 || len(a.Outputs[0].Data) != 1 || a.Outputs[0].Data[0] != q.Inputs[0].Data[0] {
		return fmt.Errorf("asked %v, got %v", q, a)
	}
	return nil
}

// In merged batches with bad queries, each of these is answered with the error,
// and nobody else is.
func TestBadQueryInMergedBatches(t *testing.T) {
	t.Parallel()
	path := write(t, "quotient.onnx", quotient(numbers))
	p := serve(t, config{services: []service{{"quotient", path, "max_batch = 8"}}})
	const clients, each = 8, 40
	crowd(clients, func(client int, _ *rand.Rand) {
		for n := range each {
			if client == 0 {
				refusedWith(t, p.infer("quotient", bad()), 500, "model_failed")
				continue
			}
			q := good(n)
			if err := checkQuotient(q, p.infer("quotient", q)); err != nil {
				t.Errorf("a query that is innocent: %v", err)
				return
			}
		}
	})
	m := p.metrics()
	if m[`overlapd_queries_retried_total{service="quotient"}`] == 0 {
		t.Errorf("no batch was merged with a bad query: %v", m)
	}
	if n := p.count(func(e event) bool { return e.Message == "worker is lost" }); n != 0 {
		t.Errorf("%d workers were lost", n)
	}
}
