package predictor_test

import (
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// Without a network, a predictor expects spans that run together to take as long as one after
// another. It corrects isolated latencies by what it observes.
func Example() {
	const ms = int64(time.Millisecond)
	solo, err := predictor.NewSolo(2, 3) // service 0 has two operators, service 1 three
	if err != nil {
		panic(err)
	}
	solo.SetOperators(0, 1, 0, []int64{2 * ms, 3 * ms}) // for a batch of 1, without sequences
	solo.SetOperators(1, 1, 0, []int64{4 * ms, 4 * ms, 4 * ms})
	p := predictor.New(solo)

	first := models.Group{Spans: []models.Span{{Service: 0, End: 2, Size: 1}}}
	both := models.Group{Spans: []models.Span{{Service: 0, End: 2, Size: 1}, {Service: 1, End: 3, Size: 1}}}
	predict := func() {
		estimates := make([]models.Estimate, 2)
		p.Predict([]models.Group{first, both}, estimates)
		fmt.Println(estimates[0].Latency.Round(time.Millisecond), estimates[1].Latency.Round(time.Millisecond))
	}
	predict()
	for second := range time.Duration(100) { // service 0 has become slower
		p.Observe(second*time.Second, first, 6*time.Millisecond)
	}
	predict()
	// Output:
	// 5ms 17ms
	// 6ms 18ms
}
