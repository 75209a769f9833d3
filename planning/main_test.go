package planning

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func alone() Search { return Search{Solver: noSolver, Limit: 5 * time.Second} }

// installed returns a search with a real solver, and skips the test where none is.
func installed(t testing.TB) Search {
	t.Helper()
	s, err := findSolver("")
	if err != nil || s == nil {
		t.Skipf("no solver is installed (%v): %s", err, solverRemedy)
	}
	return Search{Limit: 20 * time.Second}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(1, math.Abs(a), math.Abs(b)) }

// randomServices returns services with loads of very different size.
func randomServices(r *rand.Rand, n int, load, memory float64) (services []Service) {
	sum := 0.0
	for i := range n {
		s := Service{
			Name: fmt.Sprintf("m%d", i), Alpha: 0.2 + 4*r.Float64(), Beta: 1 + 50*r.Float64(),
			Memory: memory * (0.2 + r.Float64()), Rate: r.ExpFloat64(), Load: 0.05 + r.ExpFloat64(),
		}
		if r.IntN(2) == 0 {
			s.Working = memory * 0.3 * r.Float64()
		}
		sum += s.Load
		services = append(services, s)
	}
	for i := range services {
		services[i].Load *= load / sum
	}
	return services
}

func equalDevices(n int, memory float64) (devices []Device) {
	for i := range n {
		devices = append(devices, Device{Name: fmt.Sprintf("gpu%d", i), Memory: memory, Speed: 1})
	}
	return devices
}

func ctx() context.Context { return context.Background() }
