package planning

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// exactPlace returns the largest least burst tolerance of all placements that overload no
// device by more than a factor, by trying every one of them. How busy the busiest device
// must be is calculated by Hall's condition: the services that run only on some devices
// load these.
func exactPlace(services []Service, devices []Device, overload float64) float64 {
	best := math.Inf(-1)
	everyWay(len(services), func([]int) int { return 1<<len(devices) - 1 }, func(of []int) {
		on := make([]uint, len(services)) // a bit for each device
		for i := range on {
			on[i] = uint(of[i] + 1)
		}
		value := math.Inf(1)
		for d, device := range devices {
			need := 0.0
			for k, s := range services {
				if on[k]>>d&1 == 1 {
					need += s.Memory + s.Working
				}
			}
			if need > device.Memory {
				return
			}
		}
		speed := func(set uint) (sum float64) {
			for ; set != 0; set &= set - 1 {
				sum += devices[bits.TrailingZeros(set)].Speed
			}
			return sum
		}
		for only := uint(1); only < 1<<len(devices); only++ {
			load := 0.0
			for k, s := range services {
				if on[k]&^only == 0 {
					load += s.Load
				}
			}
			if load > overload*speed(only)*(1+1e-7) {
				return
			}
		}
		for k, s := range services {
			value = min(value, speed(on[k])/s.Load)
		}
		best = max(best, value)
	})
	return best
}

func checkPlace(t *testing.T, services []Service, devices []Device, plan *Placement) {
	t.Helper()
	if err := plan.Fits(services, devices); err != nil {
		t.Error(err)
	}
	speed := map[string]float64{}
	least := math.Inf(1)
	for _, d := range devices {
		speed[d.Name] = d.Speed
	}
	for _, s := range plan.Services {
		sum := 0.0
		for _, d := range s.Devices {
			sum += speed[d]
		}
		least = min(least, sum/s.Load)
	}
	if !near(least, plan.Objective) || plan.Objective > plan.Bound*(1+1e-9) {
		t.Errorf("the least burst tolerance is %v, the plan says %v, bound %v", least, plan.Objective, plan.Bound)
	}
	if faults := plan.faults(); faults != nil {
		t.Error(faults)
	}
}

// overloadOf returns the overload that the search finds.
func overloadOf(services []Service, devices []Device) float64 {
	p := &host{services: services, devices: devices}
	sum, speed := 0.0, 0.0
	for _, s := range services {
		sum += s.Load
	}
	for _, d := range devices {
		speed += d.Speed
	}
	leastOverload(&p.load, sum, speed, func() (*replicas, bool) { return p.find(0) })
	return p.load
}

func placeCase(seed uint64) ([]Service, []Device) {
	r := rand.New(rand.NewPCG(seed, 2))
	devices := equalDevices(1+r.IntN(3), 20+30*r.Float64())
	speed := 0.0
	for d := range devices {
		if r.IntN(2) == 0 {
			devices[d].Memory *= 0.5 + r.Float64()
			devices[d].Speed = 0.3 + r.Float64()
		}
		speed += devices[d].Speed
	}
	return randomServices(r, 1+r.IntN(4), speed*(0.2+0.7*r.Float64()), 12), devices
}

func placeTrial(t *testing.T, seed uint64) trial {
	services, devices := placeCase(seed)
	return trial{
		find:  func(how Search) (*Placement, error) { return Place(ctx(), services, devices, how) },
		check: func(plan *Placement) { checkPlace(t, services, devices, plan) },
		exact: func() float64 { return exactPlace(services, devices, overloadOf(services, devices)) },
	}
}

// TestGreedy puts services on devices by memory alone.
func TestGreedy(t *testing.T) {
	device := func(name string, memory float64) Device { return Device{Name: name, Memory: memory} }
	service := func(name string, memory float64, on ...string) Service {
		return Service{Name: name, Memory: memory, Devices: on}
	}
	for name, tt := range map[string]struct {
		services []Service
		devices  []Device
		want     string
	}{
		"no limit":            {[]Service{service("a", 9), service("b", 1e9)}, []Device{device("x", infinite), device("y", infinite)}, "[[0 1] [0 1]]"},
		"all fit":             {[]Service{service("a", 4), service("b", 6)}, []Device{device("x", 10), device("y", 10)}, "[[0 1] [0 1]]"},
		"one each":            {[]Service{service("a", 4), service("b", 7)}, []Device{device("x", 10), device("y", 8)}, "[[1] [0]]"},
		"twice what is left":  {[]Service{service("a", 2), service("b", 7), service("c", 6)}, []Device{device("x", 8), device("y", 8)}, "[[1] [0] [1]]"},
		"too large":           {[]Service{service("a", 11), service("b", 7)}, []Device{device("x", 10), device("y", 8)}, "[[] [0 1]]"},
		"the named first":     {[]Service{service("a", 9), service("b", 2, "x", "y")}, []Device{device("x", 10), device("y", 10)}, "[[] [0 1]]"},
		"no room for a named": {[]Service{service("a", 9, "x"), service("b", 8, "x"), service("c", 1)}, []Device{device("x", 10), device("y", 10)}, "[[0] [] [0 1]]"},
		"a CPU beside a GPU":  {[]Service{service("a", 9), service("b", 9)}, []Device{device("cpu", infinite), device("gpu", 10)}, "[[0 1] [0]]"},
	} {
		if got := fmt.Sprint(Greedy(tt.services, tt.devices)); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}
