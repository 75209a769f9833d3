package selection_test

import (
	"context"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/planning/selection"
)

// Policies choose the accurate variant while it keeps up with the load.
func Example() {
	worker := selection.Worker{
		Variants: []selection.Variant{
			{Name: "small", Accuracy: 70, Latency: []float64{5, 6, 7, 8}},
			{Name: "large", Accuracy: 80, Latency: []float64{20, 30, 40, 50}},
		},
		Target: 100, Workers: 1, CV: 1, Queue: 4,
	}
	set, err := worker.SolveSet(context.Background(), 10, 200, nil)
	if err != nil {
		panic(err)
	}
	for _, load := range []float64{10, 200} {
		p := set.At(load)
		variant, batch := p.Choose(1, 90) // one query, which is due in 90 ms
		fmt.Printf("at %3.0f/s: %s for %d, mean accuracy %.0f\n", load, p.Variants[variant].Name, batch, p.Accuracy)
	}
	// A daemon measures the load, and asks for a variant by the queue.
	var live selection.Live
	live.Use(set)
	for at := time.Duration(0); at < 5*time.Second; at += 5 * time.Millisecond {
		live.Arrived(at)
	}
	fmt.Println(live.Choose(4, 30*time.Millisecond))
	// Output:
	// at  10/s: large for 1, mean accuracy 80
	// at 200/s: small for 1, mean accuracy 70
	// small
}
