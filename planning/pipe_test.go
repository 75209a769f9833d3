package planning

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// tinyCase returns services with a few random blocks, and a few devices of two classes, of
// which the second is slower.
func tinyCase(r *rand.Rand, services int) (list []Service, devices []Device) {
	for i := range services {
		s := Service{Name: fmt.Sprint("s", i), Rate: 0.5 + r.Float64(), Target: 30 + 90*r.Float64()}
		s.Blocks = Blocks{Times: map[string][][][]float64{}, Margin: 0.4, Fill: 50 + 500*r.Float64(), Moves: make([]float64, 3)}
		for end := range 3 {
			s.Blocks.Ends = append(s.Blocks.Ends, 2*end+2)
			s.Blocks.Moves[end] = math.Round(9000 * r.Float64())
		}
		for k, class := range []string{"A", "B"} {
			slower := 1 + 2*float64(k)*r.Float64()
			for share := 1; share <= 2-k; share++ {
				var batches [][]float64
				for batch := 1; batch <= 2; batch++ {
					var blocks []float64
					for range 3 {
						blocks = append(blocks, math.Round((1000+9000*r.Float64())*slower*(0.6+0.4*float64(batch))*(0.4+0.6*float64(share))))
					}
					batches = append(batches, blocks)
				}
				s.Blocks.Times[class] = append(s.Blocks.Times[class], batches)
			}
		}
		list = append(list, s)
	}
	link := 0
	for _, c := range []struct {
		class string
		n     int
	}{{"A", 1 + r.IntN(2)}, {"B", 1 + r.IntN(3)}} {
		for i := range c.n {
			if i%2 == 0 {
				link++
			}
			devices = append(devices, Device{Name: fmt.Sprint(c.class, i), Class: c.class, Memory: 10, Speed: 1, Link: link})
		}
	}
	return list, devices
}

// anyPipeline is what brute force chooses from: a pipeline with whole devices.
type anyPipeline struct {
	classes string
	devices map[string]int
	rate    float64
}

// allPipelines returns every pipeline of a service of at most two stages.
func allPipelines(s *Service, count map[string]int, perLink map[string]float64) (all []anyPipeline) {
	b := s.Blocks
	limit := 1000 * s.Target * (1 - b.Margin)
	stage := func(class string, share, batch, from, to, devices int) (time, rate float64) {
		for i := from; i < to; i++ {
			time += b.Times[class][share-1][batch-1][i]
		}
		rate = 1e6 * float64(batch) / time
		for _, cut := range []int{from, to} {
			if cut > 0 && cut < len(b.Ends) {
				rate = min(rate, 1e6/max(1, b.Moves[cut-1])/float64(share)/perLink[class])
			}
		}
		return time, rate * float64(share*devices)
	}
	for batch := 1; batch <= 2; batch++ {
		fill := 1.3e6 * float64(batch-1) / b.Fill
		for first := range b.Times {
			for share := range b.Times[first] {
				for n := 1; n <= count[first]; n++ {
					if time, rate := stage(first, share+1, batch, 0, 3, n); time+fill <= limit {
						all = append(all, anyPipeline{first, map[string]int{first: n}, rate})
					}
					for cut := 1; cut < 3; cut++ {
						time, rate := stage(first, share+1, batch, 0, cut, n)
						for second := range b.Times {
							for share := range b.Times[second] {
								for m := 1; m <= count[second]; m++ {
									time2, rate2 := stage(second, share+1, batch, cut, 3, m)
									if time+time2+fill+b.Moves[cut-1]*float64(batch) <= limit {
										devices := map[string]int{first: n}
										devices[second] += m
										all = append(all, anyPipeline{first + second, devices, min(rate, rate2)})
									}
								}
							}
						}
					}
				}
			}
		}
	}
	return all
}

// bruteForce returns the most that pipelines of a service answer with so many devices left,
// given the lists of classes of those that it has.
func bruteForce(all []anyPipeline, count map[string]int, lists []string) (best float64) {
	for i, p := range all {
		begin := 1 // pipelines whose list begins with that class
		for _, l := range lists {
			if l[0] == p.classes[0] {
				begin++
			}
		}
		if begin > 2 || len(p.classes) == 2 && slices.Contains(lists, p.classes) || p.devices["A"] > count["A"] || p.devices["B"] > count["B"] {
			continue
		}
		left := map[string]int{"A": count["A"] - p.devices["A"], "B": count["B"] - p.devices["B"]}
		best = max(best, p.rate+bruteForce(all[i:], left, append(slices.Clone(lists), p.classes)))
	}
	return best
}

// TestPipeIsBest holds plans against all that there are, of one service and of two.
func TestPipeIsBest(t *testing.T) {
	planned := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		services, devices := tinyCase(r, 1+int(seed%2))
		count, onLink := map[string]int{}, map[int]int{}
		for _, d := range devices {
			count[d.Class]++
			onLink[d.Link]++
		}
		perLink := map[string]float64{}
		for _, d := range devices {
			perLink[d.Class] = max(perLink[d.Class], float64(onLink[d.Link]))
		}
		want := 0.0
		all := make([][]anyPipeline, len(services))
		for i := range services {
			all[i] = allPipelines(&services[i], count, perLink)
		}
		if len(services) == 1 {
			want = bruteForce(all[0], count, nil) / services[0].Rate
		} else {
			for a := range count["A"] + 1 {
				for b := range count["B"] + 1 {
					one := bruteForce(all[0], map[string]int{"A": a, "B": b}, nil) / services[0].Rate
					other := bruteForce(all[1], map[string]int{"A": count["A"] - a, "B": count["B"] - b}, nil) / services[1].Rate
					want = max(want, min(one, other))
				}
			}
		}
		plan, err := Pipe(ctx(), services, devices, 2, alone())
		if (err != nil) != (want == 0) || err != nil && !errors.Is(err, errNoPlan) {
			t.Fatalf("seed %d: %v, and the best is %v", seed, err, want)
		}
		if err != nil {
			continue
		}
		planned++
		if !near(plan.Objective, want) || plan.Solver != exactSearch {
			t.Errorf("seed %d: %v by %s, the best is %v", seed, plan.Objective, plan.Solver, want)
		}
		if faults := a2(services, plan, 2); len(faults) > 0 {
			t.Errorf("seed %d: %q", seed, faults)
		}
	}
	if planned < 30 {
		t.Errorf("only %d of the cases have a plan", planned)
	}
}

// TestPipeOfMany holds plans for more devices than the search has room for against their
// bounds.
func TestPipeOfMany(t *testing.T) {
	for _, n := range []int{1, 700, 30_000} {
		services, _ := tinyCase(rand.New(rand.NewPCG(7, 3)), 2)
		var devices []Device
		for i := range 2 * n {
			devices = append(devices, Device{Name: fmt.Sprint("d", i), Class: string("AB"[i%2]), Memory: 10, Speed: 1})
		}
		plan, err := Pipe(ctx(), services, devices, 3, alone())
		if err != nil {
			t.Fatal(err)
		}
		if faults := a2(services, plan, 3); len(faults) > 0 {
			t.Errorf("%d devices: %q", 2*n, faults)
		}
		if exact := plan.Solver == exactSearch; plan.Objective < 0.999*plan.Bound && n > 1 || exact != (n == 1) {
			t.Errorf("%d devices: %v by %s, bound %v", 2*n, plan.Objective, plan.Solver, plan.Bound)
		}
	}
}

// TestNoPipe sees an error that says what to change where there is no plan of pipelines.
func TestNoPipe(t *testing.T) {
	pipe := func(stages int, change func(s *Service, d []Device)) error {
		services, devices := tinyCase(rand.New(rand.NewPCG(1, 1)), 1)
		change(&services[0], devices)
		_, err := Pipe(ctx(), services, devices, stages, alone())
		return err
	}
	for want, err := range map[string]error{
		"pipelines of at most 0 stages":                                       pipe(0, func(*Service, []Device) {}),
		"pipelines of at most 5 stages":                                       pipe(5, func(*Service, []Device) {}),
		"its target of 0.1 ms with a margin of 40 % leaves 0.06":              pipe(2, func(s *Service, _ []Device) { s.Target = 0.1 }),
		"no service has a load above 0":                                       pipe(2, func(s *Service, _ []Device) { s.Rate = 0 }),
		"service s0 needs 11 MiB, but no device has more than 10":             pipe(2, func(s *Service, _ []Device) { s.Memory = 11 }),
		"give numbers from 0, the margin below 1":                             pipe(2, func(s *Service, _ []Device) { s.Blocks.Margin = 1 }),
		"takes +Inf us; give a number from 0, or a link":                      pipe(2, func(s *Service, _ []Device) { s.Blocks.Moves[1] = math.Inf(1) }),
		"block 2 ends before operator 2, and the block before it":             pipe(2, func(s *Service, _ []Device) { s.Blocks.Ends[1] = 2 }),
		"3 blocks and 1 times for moving":                                     pipe(2, func(s *Service, _ []Device) { s.Blocks.Moves = s.Blocks.Moves[:1] }),
		`for 0 shares of the devices of class "C"; measure the service there`: pipe(2, func(_ *Service, d []Device) { d[0].Class = "C" }),
		"needs a time from 0 for each of 3 blocks":                            pipe(2, func(s *Service, _ []Device) { s.Blocks.Times["B"][0][0] = nil }),
	} {
		if !errors.Is(err, errNoPlan) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	services, devices := tinyCase(rand.New(rand.NewPCG(1, 1)), 2)
	for name, plan := range map[string]func(context.Context, []Service, []Device, int, Search) (*Placement, error){"chains": Chains, "shared": PipeShared} {
		if _, err := plan(ctx(), services, devices, 1000, alone()); !errors.Is(err, errNoPlan) || !strings.Contains(err.Error(), "pipelines of at most 1000 stages") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Pipe(ctx(), services, devices[:1], 2, alone()); !errors.Is(err, errNoPlan) || !strings.Contains(err.Error(), "each of 2 services devices of its own out of 1") {
		t.Error(err)
	}
	if _, err := Chains(ctx(), services, devices[:1], 2, alone()); !errors.Is(err, errNoPlan) || !strings.Contains(err.Error(), "two classes, but there are 1") {
		t.Error(err)
	}
	one, devices := tinyCase(rand.New(rand.NewPCG(3, 1)), 1)
	one[0].Target, one[0].Blocks.Ends = 0, []int{1}
	for class, times := range one[0].Blocks.Times {
		for share := range times {
			for batch := range times[share] {
				times[share][batch] = times[share][batch][:1]
			}
		}
		one[0].Blocks.Times[class] = times
	}
	plan, err := Pipe(ctx(), one, devices, 3, alone())
	if err != nil || plan.Services[0].Operators != 1 || slices.ContainsFunc(plan.Services[0].Pipelines, func(p Pipeline) bool { return len(p.Stages) != 1 }) {
		t.Errorf("a model of one operator: %+v, %v", plan, err)
	}
}

// TestPipeShared has devices share their time among stages and services: no device is
// busier than its time, everything is in time, and no plan with devices of their own is
// better.
func TestPipeShared(t *testing.T) {
	planned := 0
	for seed := range uint64(20) {
		services, devices := tinyCase(rand.New(rand.NewPCG(seed, 5)), 3)
		plan, err := PipeShared(ctx(), services, devices, 3, alone())
		if err != nil {
			continue
		}
		planned++
		busy, class := map[string]float64{}, map[string]string{}
		for _, d := range devices {
			class[d.Name] = d.Class
		}
		for i, s := range plan.Services {
			sum := 0.0
			for _, way := range s.Pipelines {
				sum += way.Rate
				limit := 600 * services[i].Target // microseconds, with a margin of 40 %
				spent := 1.3e6 * float64(way.Batch-1) / services[i].Blocks.Fill
				for _, stage := range way.Stages {
					spent += 1000*stage.Time + stage.Move*float64(way.Batch)
					for _, name := range stage.Devices {
						busy[name] += way.Rate / float64(way.Batch) * stage.Time / 1000 / float64(len(stage.Devices))
					}
				}
				if spent > limit*(1+epsilon) {
					t.Errorf("seed %d: a batch of %s takes %v us of %v", seed, s.Name, spent, limit)
				}
			}
			if sum < plan.Objective*s.Rate*(1-negligible) {
				t.Errorf("seed %d: %s gets %v a second", seed, s.Name, sum)
			}
		}
		for name, part := range busy {
			if part > 1+negligible {
				t.Errorf("seed %d: device %s is busy for %v of its time", seed, name, part)
			}
		}
		if apart, err := Pipe(ctx(), services, devices, 1, alone()); err == nil && apart.Objective > plan.Objective*(1+negligible) {
			t.Errorf("seed %d: %v, and %v with devices of their own", seed, plan.Objective, apart.Objective)
		}
	}
	if planned < 8 {
		t.Errorf("only %d of the cases have a plan", planned)
	}
	services, devices := tinyCase(rand.New(rand.NewPCG(0, 5)), 3)
	for i := range services {
		services[i].Memory, services[i].Target = 10, 0
	}
	if _, err := PipeShared(ctx(), services, devices, 3, alone()); !errors.Is(err, errNoPlan) || !strings.Contains(err.Error(), "MiB, but one of these devices has 10; give more memory") {
		t.Error(err)
	}
}

// TestGroup groups operators into blocks of about equal time.
func TestGroup(t *testing.T) {
	for want, tt := range map[string]struct {
		micros []float64
		blocks int
	}{
		"[2 4 6]": {[]float64{1, 1, 1, 1, 1, 1}, 3},
		"[1 2 4]": {[]float64{9, 1, 1, 1}, 3},
		"[1 2]":   {[]float64{1, 9}, 10},
		"[1]":     {[]float64{5}, 10},
		"[4]":     {[]float64{1, 2, 3, 4}, 1},
		"[3 4]":   {[]float64{1, 1, 1, 3}, 2},
		"[3]":     {[]float64{0, 0, 0}, 3},
	} {
		if got := fmt.Sprint(Group(tt.micros, tt.blocks)); got != want {
			t.Errorf("%v in %d: %s, want %s", tt.micros, tt.blocks, got, want)
		}
	}
}

// BenchmarkFigure14 reports how long plans take for up to 100,000 devices, and for up to
// four classes of them, and how near their bounds they are:
//
//	OVERLAPD_SHARED_DATA=DIR go test -run - -bench Figure14 -benchtime 1x ./planning
func BenchmarkFigure14(b *testing.B) {
	_, blocks := ppipeCases(b, "v4")
	for _, c := range []struct {
		classes []string
		counts  []int
	}{
		{[]string{"L4", "P4"}, []int{25, 75}},
		{[]string{"L4", "P4"}, []int{250, 750}},
		{[]string{"L4", "P4"}, []int{2500, 7500}},
		{[]string{"L4", "P4"}, []int{25000, 75000}},
		{[]string{"L4", "P4", "T4"}, []int{25, 37, 38}},
		{[]string{"L4", "V100", "T4", "P4"}, []int{25, 25, 25, 25}},
	} {
		b.Run(fmt.Sprint(c.classes, c.counts), func(b *testing.B) {
			for range b.N {
				sum, gap := 0.0, 0.0
				plans, _ := ppipeCases(b, "v4")
				for _, path := range plans {
					services, devices, stages := figure14(b, blocks, path, c.classes, c.counts)
					began := time.Now()
					p, err := Pipe(ctx(), services, devices, stages, Search{Solver: noSolver, Limit: time.Minute})
					if err != nil {
						b.Fatal(err)
					}
					took := time.Since(began).Seconds()
					sum += took
					gap += 1 - p.Objective/p.Bound
					b.Logf("%.3f s, %.5f of the bound: %.40s", took, p.Objective/p.Bound, services[0].Name)
				}
				b.ReportMetric(sum/float64(len(plans)), "s/plan")
				b.ReportMetric(100*gap/float64(len(plans)), "%gap")
			}
		})
	}
}

// figure14 returns the first service of a case, for other devices.
func figure14(b *testing.B, blocks, path string, classes []string, counts []int) ([]Service, []Device, int) {
	c, stages, err := ReadPPipe(blocks, path, nil)
	if err != nil {
		b.Fatal(err)
	}
	s := c.Services[0]
	s.Blocks.Fill = 0
	var devices []Device
	for k, class := range classes {
		if s.Blocks.Times[class], err = ReadBlocks(blocks, s.Name, class); err != nil {
			b.Fatal(err)
		}
		for i := range counts[k] {
			devices = append(devices, Device{Name: fmt.Sprint(class, "-", i), Class: class, Memory: 1, Speed: 1})
		}
	}
	return []Service{s}, devices, stages
}
