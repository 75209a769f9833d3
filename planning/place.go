package planning

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Place spreads services over the devices of a host. A service runs on any number of devices, so
// its burst tolerance is the total speed of these devices over its load (Shepherd, section 4, with
// each device a worker of its own). The objective is the lowest burst tolerance. Memory that
// remains gets further replicas of the services with the lowest. No device is busier than its whole
// time, or than the least overload found if all are overloaded. If memory suffices for every
// service on every device, that is the plan.
func Place(ctx context.Context, services []Service, devices []Device, how Search) (*Placement, error) {
	s, err := how.begin(ctx, services, devices)
	if err != nil {
		return nil, err
	}
	if len(devices) > maxHost {
		return nil, fmt.Errorf("%w: a host may have at most %d devices, but there are %d; form serving groups instead", errNoPlan, maxHost, len(devices))
	}
	s.say("placing %d services on %d devices", len(services), len(devices))
	p := &host{search: s, services: services, devices: devices}
	sum, speed := 0.0, 0.0
	for _, s := range services {
		sum += s.Load
	}
	for _, d := range devices {
		speed += d.Speed
	}
	best, ok := leastOverload(&p.load, sum, speed, func() (*replicas, bool) { return p.find(0) })
	if !ok {
		return nil, fmt.Errorf("%w was found that fits all services into the memory of the devices; give more memory", errNoPlan)
	}
	bound := greatest(p.mostAlone(), p.mayReach)
	best = climb(s, best, bound, (*replicas).tolerance, p.find)
	if s.solver != nil && best.tolerance() < bound*(1-epsilon) {
		best, bound = p.solve(best, bound)
	}
	// With equal keys the services keep their order, and fill then orders them by tolerance.
	best.fill(falling(len(services), func(int) float64 { return 0 }))
	plan := &Placement{Kind: "place", Objective: best.tolerance(), Bound: max(bound, best.tolerance()), Services: slices.Clone(services), Devices: slices.Clone(devices)}
	_, shares := best.route()
	for i := range services {
		for d, on := range best.on[i] {
			if on {
				plan.Services[i].Devices = append(plan.Services[i].Devices, devices[d].Name)
				plan.Devices[d].Load += shares[i][d] / devices[d].Speed
			}
		}
	}
	return s.finish(plan)
}

// Greedy returns the devices of each service if neither a plan nor loads exist. It goes by memory
// alone, which may be infinite. A service that names Devices runs on those of them that have room.
// The others, by falling memory, go to the device with the most room. Then, as long as a device has
// room, the services on the fewest devices get one more. A service that fits nowhere has no
// devices.
func Greedy(services []Service, devices []Device) [][]int {
	p := &host{services: slices.Clone(services), devices: slices.Clone(devices)}
	for i := range services {
		p.services[i].Load = 1
	}
	for d := range devices {
		p.devices[d].Speed = 1
	}
	r, order := p.none(), falling(len(services), func(i int) float64 { return services[i].needs() })
	for _, i := range order {
		for d := range devices {
			if slices.Contains(services[i].Devices, devices[d].Name) {
				r.add(i, d)
			}
		}
	}
	// The services with fixed devices are done. The others get one device each, and then further
	// ones.
	order = slices.DeleteFunc(order, func(i int) bool { return len(services[i].Devices) > 0 })
	for _, i := range order {
		r.addMost(i)
	}
	r.fill(order)
	// The result lists the devices of each service by index.
	where := make([][]int, len(services))
	for i, on := range r.on {
		for d := range on {
			if on[d] {
				where[i] = append(where[i], d)
			}
		}
	}
	return where
}

// maxHost is the largest number of devices of a host.
const maxHost = 256

// host is the problem.
type host struct {
	*search
	services []Service
	devices  []Device

	// load is the most that a device may be busy: 1 unless all are overloaded.
	load float64
}

// replicas is an assignment of services to devices.
type replicas struct {
	*host

	// on is indexed by service and device.
	on [][]bool

	// room is the remaining memory of each device in MiB.
	room []float64
}

// none returns an assignment without any service.
func (p *host) none() *replicas {
	r := &replicas{host: p}
	for range p.services {
		r.on = append(r.on, make([]bool, len(p.devices)))
	}
	for _, d := range p.devices {
		r.room = append(r.room, d.Memory)
	}
	return r
}

// add places a service on one more device and reports whether the device had room.
func (r *replicas) add(i, d int) bool {
	if r.on[i][d] || !atMost(r.services[i].needs(), r.room[d]) {
		return false
	}
	r.on[i][d] = true
	r.room[d] -= r.services[i].needs()
	return true
}

// speed returns the total speed of the devices of a service.
func (r *replicas) speed(i int) (sum float64) {
	for d, on := range r.on[i] {
		if on {
			sum += r.devices[d].Speed
		}
	}
	return sum
}

// toleranceOf returns the burst tolerance of a service.
func (r *replicas) toleranceOf(i int) float64 { return r.speed(i) / max(r.services[i].Load, 1e-300) }

// tolerance returns the lowest burst tolerance.
func (r *replicas) tolerance() float64 {
	least := infinite
	for i := range r.services {
		least = min(least, r.toleranceOf(i))
	}
	return least
}

// sweeps is the most rounds in which route distributes the loads.
const sweeps = 100

// route distributes the load of each service over its devices such that the busiest device is as
// little busy as possible, up to rounding. It goes service by service, to the level at which the
// service's devices are equally busy. It returns how busy the busiest device is, and the load of
// each service on each device.
func (r *replicas) route() (busiest float64, shares [][]float64) {
	loads := make([]float64, len(r.devices))
	for range r.services {
		shares = append(shares, make([]float64, len(r.devices)))
	}
	for range sweeps {
		moved := 0.0
		for i := range r.services {
			for d, share := range shares[i] {
				loads[d] -= share
			}
			// loads now holds the load of the other services only.
			level := r.level(i, loads)
			for d, on := range r.on[i] {
				if on {
					share := max(0, level*r.devices[d].Speed-loads[d])
					moved = max(moved, math.Abs(share-shares[i][d]))
					shares[i][d] = share
				}
				loads[d] += shares[i][d]
			}
		}
		if moved < epsilon {
			break
		}
	}
	for d, l := range loads {
		busiest = max(busiest, l/r.devices[d].Speed)
	}
	return busiest, shares
}

// level returns how busy those devices of service i are that take part of its load, given the loads
// of the other services.
func (r *replicas) level(i int, loads []float64) (level float64) {
	var on []int
	for d, runs := range r.on[i] {
		if runs {
			on = append(on, d)
		}
	}
	busy := func(d int) float64 { return loads[d] / r.devices[d].Speed }
	slices.SortFunc(on, func(a, b int) int { return cmp.Compare(busy(a), busy(b)) })
	load, speed := r.services[i].Load, 0.0
	for _, d := range on {
		if speed > 0 && busy(d) >= level {
			break
		}
		load += loads[d]
		speed += r.devices[d].Speed
		level = load / speed
	}
	return level
}

// find looks for replicas with a burst tolerance. Each service gets as many devices as that takes.
// The first attempt places services by falling memory on the devices with the most room. Later
// attempts choose the order and the devices more and more at random.
func (p *host) find(aim float64) (*replicas, bool) {
	random := rand.New(rand.NewPCG(1, 1))
	key, rank := make([]float64, len(p.services)), make([]float64, len(p.devices))
	for try := 0; try < attempts && (try == 0 || !p.over()); try++ {
		// The noise grows with the attempts, from none in the first.
		noise := func() float64 { return math.Exp(float64(try) / attempts * random.NormFloat64()) }
		for i, s := range p.services {
			key[i] = s.needs() * noise()
			if try%2 == 1 {
				key[i] *= s.Load
			}
		}
		r := p.none()
		for _, i := range falling(len(key), func(i int) float64 { return key[i] }) {
			for d := range rank {
				rank[d] = r.room[d] * r.devices[d].Speed * noise()
				// This attempt prefers full devices.
				if try%4 >= 2 {
					rank[d] = -rank[d]
				}
			}
			for _, d := range falling(len(rank), func(d int) float64 { return rank[d] }) {
				// The service has enough devices.
				if speed := r.speed(i); speed > 0 && atMost(aim*p.services[i].Load, speed) {
					break
				}
				r.add(i, d)
			}
		}
		if low := r.tolerance(); low > 0 && atMost(aim, low) && r.runsAll() {
			// The burst tolerance alone does not limit the load of a device.
			if busiest, _ := r.route(); busiest <= p.load*(1+negligible) {
				return r, true
			}
		}
	}
	return nil, false
}

// runsAll reports whether each service runs somewhere.
func (r *replicas) runsAll() bool {
	return !slices.ContainsFunc(r.on, func(on []bool) bool { return !slices.Contains(on, true) })
}

// mostAlone returns the lowest burst tolerance if each service runs on all devices that could hold
// it alone.
func (p *host) mostAlone() float64 {
	alone := p.none()
	for i, s := range p.services {
		for d := range p.devices {
			alone.on[i][d] = atMost(s.needs(), p.devices[d].Memory)
		}
	}
	return alone.tolerance()
}

// mayReach reports whether the memory of all devices together suffices for a burst tolerance, if
// each service has the fastest devices.
func (p *host) mayReach(aim float64) bool {
	left := 0.0
	fastest := falling(len(p.devices), func(d int) float64 { return p.devices[d].Speed })
	for _, d := range p.devices {
		left += d.Memory
	}
	for _, s := range p.services {
		speed := 0.0
		for _, at := range fastest {
			d := p.devices[at]
			if atMost(s.needs(), d.Memory) && (speed == 0 || !atMost(aim*s.Load, speed)) {
				left -= s.needs()
				speed += d.Speed
			}
		}
	}
	return atMost(0, left)
}

// fill gives the remaining memory to the services in order with the lowest burst tolerances.
func (r *replicas) fill(order []int) {
	for gained := true; gained; {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(r.toleranceOf(a), r.toleranceOf(b)) })
		gained = slices.ContainsFunc(order, r.addMost)
	}
}

// addMost adds a service on the device with the most room, of those without it, and reports whether
// that device has room.
func (r *replicas) addMost(i int) bool {
	most := -1
	for d, room := range r.room {
		if !r.on[i][d] && (most < 0 || room > r.room[most]) {
			most = d
		}
	}
	return most >= 0 && r.add(i, most)
}

// solve lets a solver look for replicas with a higher burst tolerance. It returns the better
// replicas and bound.
func (p *host) solve(best *replicas, bound float64) (*replicas, float64) {
	m, start := p.program(best, bound)
	found := p.ask(m, start)
	if found == nil || found.infeasible {
		return best, bound
	}
	r := p.none()
	for i := range p.services {
		for d := range p.devices {
			if found.x[i*len(p.devices)+d] > 0.5 && !r.add(i, d) {
				p.note = p.solver.name + " returned a plan that exceeds memory by more than rounding"
				return best, bound
			}
		}
	}
	if r.tolerance() > best.tolerance()*(1+negligible) {
		p.by, best = p.solver.name, r
	}
	if bound = max(min(bound, -found.bound), best.tolerance()); bound <= best.tolerance()*(1+negligible) {
		p.by = p.solver.name
	}
	return best, bound
}

// program returns the program of a placement, and the replicas as its solution, or nil if their
// routes are too inexact. The variable of service i on device d has the index i·devices + d. The
// fraction of its load on that device has the same index, counted from parts.
func (p *host) program(best *replicas, bound float64) (m *program, start []float64) {
	m = &program{}
	n := len(p.devices)
	m.add(binary, len(p.services)*n)
	parts := m.add(variable{high: 1}, len(p.services)*n)
	least := m.add(variable{high: bound * (1 + negligible), cost: -1}, 1)
	start = make([]float64, len(m.variables))
	start[least] = best.tolerance()
	_, shares := best.route()
	memory, busy := make([][]term, n), make([][]term, n)
	for i, s := range p.services {
		var speed, all []term
		for d, device := range p.devices {
			on, of := i*n+d, parts+i*n+d
			// A device can only take load of a service that it runs.
			m.require(-infinite, 0, term{of, 1}, term{on, -1})
			all, speed = append(all, term{of, 1}), append(speed, term{on, part(device.Speed, s.Load)})
			memory[d] = append(memory[d], term{on, part(s.needs(), device.Memory)})
			busy[d] = append(busy[d], term{of, s.Load / (p.load * device.Speed)})
			if best.on[i][d] {
				start[on], start[of] = 1, part(shares[i][d], s.Load)
			}
		}
		m.require(1, 1, all...)
		if s.Load > 0 {
			// The variable least is at most the burst tolerance of each service with load.
			m.require(0, infinite, append(speed, term{least, -1})...)
		} else {
			start[parts+i*n+slices.Index(best.on[i], true)] = 1
		}
	}
	for d := range p.devices {
		m.require(-infinite, 1, memory[d]...)
		m.require(-infinite, 1, busy[d]...)
	}
	if m.check(start) != nil {
		start = nil
	}
	return m, start
}
