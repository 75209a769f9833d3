package test

import (
	"math/rand/v2"
	"testing"
)

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
