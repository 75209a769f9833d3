// Package residency simulates a device that serves more models than fit into its memory, in virtual
// time. It compares the daemon's rule for what is loaded and evicted (package overlap/residency)
// with the rules of caches and of ModelMesh, and with a set of models that never changes.
//
// A [Scenario] describes the models and their load. Its queries follow from the seed alone, so every
// policy gets the same ones. A query for a model in memory goes to the device, which runs one query at
// a time, the most urgent first. A query for another model waits for the model to be loaded if the
// policy expects that to be in time, and is rejected otherwise. One model loads at a time. A query
// violates its target if it is rejected, or dropped because the device is busy.
package residency

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"time"
)

// Scenario describes models that share a device, and the load on them.
type Scenario struct {
	// Seed determines the models, the queries and the times that loads take.
	Seed uint64 `json:"seed"`

	Models int     `json:"models"`
	Zipf   float64 `json:"zipf"`   // exponent of their popularity
	Memory int64   `json:"memory"` // bytes
	Load   float64 `json:"load"`   // what all queries take, as a fraction of the device's time
	Short  float64 `json:"short"`  // fraction of models whose queries cannot wait for a load

	// Start is what a load takes besides copying the weights, at Rate bytes per second.
	Start time.Duration `json:"start_ns"`
	Rate  float64       `json:"bytes_per_second"`

	// Day is the period in which the popularity of models changes. The measurement takes Duration, and
	// begins after WarmUp.
	Day      time.Duration `json:"day_ns"`
	Duration time.Duration `json:"duration_ns"`
	WarmUp   time.Duration `json:"warm_up_ns"`
}

// Default is a day of 1,000 models on a device like an A100 with 80 GB, which holds 172 of them. As
// there is a group of models for every three hours of the day, three hours show each of them.
func Default() Scenario {
	return Scenario{
		Seed: 1, Models: 1000, Zipf: 0.9, Memory: 80e9, Load: 0.6, Short: 0.5, Start: 50 * time.Millisecond, Rate: 12e9,
		Day: 24 * time.Hour, Duration: 24 * time.Hour / groups, WarmUp: 10 * time.Minute,
	}
}

// check returns what is wrong with a scenario.
func (sc *Scenario) check() error {
	switch {
	case sc.Models < 1 || sc.Models > mostModels:
		return fmt.Errorf("%d models: give 1 to %d", sc.Models, mostModels)
	case !(sc.Zipf >= 0 && sc.Zipf <= mostZipf):
		return fmt.Errorf("a Zipf exponent of %v: give 0 to %d", sc.Zipf, mostZipf)
	case sc.Memory < 1:
		return fmt.Errorf("a memory of %d bytes: give 1 or more", sc.Memory)
	case !(sc.Load > 0 && sc.Load <= mostLoad):
		return fmt.Errorf("a load of %v: give a fraction of the device's time above 0, at most %d", sc.Load, mostLoad)
	case !(sc.Short >= 0 && sc.Short <= 1):
		return fmt.Errorf("%v of the models have short targets: give a fraction from 0 to 1", sc.Short)
	case sc.Start < 0:
		return fmt.Errorf("a load takes %v before it copies: give 0 or more", sc.Start)
	case !(sc.Rate >= leastRate):
		return fmt.Errorf("weights are copied at %v bytes per second: give %d or more", sc.Rate, leastRate)
	case sc.Day <= 0 || sc.Duration <= 0 || sc.WarmUp < 0:
		return fmt.Errorf("a day of %v, measured for %v after %v: give times above 0", sc.Day, sc.Duration, sc.WarmUp)
	}
	return nil
}

// Limits keep a simulation from taking days, and a mistaken unit from being simulated.
const (
	mostModels = 100_000
	mostZipf   = 10
	mostLoad   = 10
	leastRate  = 1_000_000
)

// overhead is the memory of a loaded model besides its weights: a session took 142 to 146 MiB on an
// H100 (docs/benchmarks/gpu.md).
const overhead = 146 << 20

// kinds are what the models are copies of: the bytes of their weights in fp32, and an assumed execution
// time. Those of resnet50, inception_v3 and bert are 1.5 to 2 times what a batch of 1 takes on an H100
// (docs/benchmarks/gpu.md).
var kinds = []struct {
	weights int64
	exec    time.Duration
}{
	{98 << 20, 2500 * time.Microsecond},  // resnet50
	{170 << 20, 4 * time.Millisecond},    // resnet101
	{230 << 20, 6 * time.Millisecond},    // resnet152
	{91 << 20, 4 * time.Millisecond},     // inception_v3
	{528 << 20, 3 * time.Millisecond},    // vgg16
	{548 << 20, 3500 * time.Microsecond}, // vgg19
	{418 << 20, 4 * time.Millisecond},    // bert
}

const (
	groups = 8   // of models, each with its own time of day
	swing  = 0.9 // by which the popularity of a group rises and falls during the day

	// Slack after the execution time, as a multiple of the load time, of models whose queries cannot
	// wait for a load, and of those whose queries can. Within these limits all ratios are as likely.
	leastShort, mostShort = 0.3, 0.9
	leastLong, mostLong   = 1.3, 13.0

	leastTarget = 4   // a target is at least so many execution times
	loadNoise   = 0.1 // relative standard deviation of load times
)

// model is one service.
type model struct {
	bytes  int64
	exec   time.Duration
	load   time.Duration // expected
	target time.Duration
	weight float64 // mean popularity
	group  int
}

// query is one arrival.
type query struct {
	model             int
	arrival, deadline time.Duration
}

// Streams of random numbers, one for each purpose.
const (
	randomModels = iota
	randomArrivals
	randomLoads
)

// world is a scenario whose random choices are made, and the source of its queries.
type world struct {
	Scenario
	models []model
	sums   []float64 // of the weights up to a model
	qps    float64
	random *rand.Rand
	now    time.Duration // of the last query
}

// newWorld makes the choices that are the same for every policy.
func newWorld(sc Scenario) (*world, error) {
	if err := sc.check(); err != nil {
		return nil, err
	}
	w := &world{Scenario: sc, random: rand.New(rand.NewPCG(sc.Seed, randomArrivals))}
	random := rand.New(rand.NewPCG(sc.Seed, randomModels))
	sum, exec := 0.0, 0.0
	for i := range sc.Models {
		k := kinds[random.IntN(len(kinds))]
		m := model{bytes: k.weights + overhead, exec: k.exec, weight: math.Pow(float64(i+1), -sc.Zipf), group: random.IntN(groups)}
		m.load = sc.Start + time.Duration(float64(k.weights)/sc.Rate*float64(time.Second))
		least, most := leastLong, mostLong
		if random.Float64() < sc.Short {
			least, most = leastShort, mostShort
		}
		// All ratios of slack to load time are as likely, so that a fixed part is just above each limit.
		slack := float64(m.load) * least * math.Pow(most/least, random.Float64())
		m.target = max(m.exec+time.Duration(slack), leastTarget*m.exec)
		sum += m.weight
		exec += m.weight * m.exec.Seconds()
		w.models, w.sums = append(w.models, m), append(w.sums, sum)
	}
	// If every query ran, the device would be busy for this part of the time.
	w.qps = sc.Load / (exec / sum)
	return w, nil
}

// next returns the next query. Candidates arrive as often as if all groups were at their peak, and a
// candidate is skipped if its group is not.
func (w *world) next() query {
	for {
		w.now += time.Duration(w.random.ExpFloat64() / (w.qps * (1 + swing)) * float64(time.Second))
		i := sort.SearchFloat64s(w.sums, w.random.Float64()*w.sums[len(w.sums)-1])
		m := &w.models[i]
		hour := w.now.Seconds()/w.Day.Seconds() + float64(m.group)/groups
		if w.random.Float64()*(1+swing) < 1+swing*math.Sin(2*math.Pi*hour) {
			return query{i, w.now, w.now + m.target}
		}
	}
}
