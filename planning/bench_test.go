package planning

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
)

// figure16 returns a configuration of Symphony's appendix A.2: 800 models, variants of 37
// of a zoo, with rates of an exponential distribution, for 20 sub-clusters. The paper does
// not say how large its models are; these have 20 to 500 MiB, log-uniformly.
func figure16(seed uint64) (services []Service, clusters []Device) {
	r := rand.New(rand.NewPCG(seed, 16))
	var zoo [37]float64
	for i := range zoo {
		zoo[i] = math.Round(20 * math.Pow(25, r.Float64()))
	}
	for i := range 800 {
		services = append(services, Service{Name: fmt.Sprint(i), Memory: zoo[r.IntN(len(zoo))], Rate: 100 * r.ExpFloat64(), Load: 1, Alpha: 1})
	}
	return services, subClusters(20, 24_000)
}

// configurations is how many of figure 16 the benchmark has, each for ten seconds.
const configurations = 10

// BenchmarkFigure16 reports imbalance factors of ours, and of the best of random
// partitions, after 10 s, as least, median and largest of the configurations:
//
//	go test -run - -bench Figure16 -benchtime 1x ./planning
func BenchmarkFigure16(b *testing.B) {
	how := Search{Solver: noSolver, Limit: 10 * time.Second}
	for name, find := range map[string]func(services []Service, clusters []Device) *Placement{
		"ours": func(services []Service, clusters []Device) *Placement {
			plan, err := Partition{}.Plan(ctx(), services, clusters, how)
			if err != nil {
				b.Fatal(err)
			}
			return plan
		},
		"random": func(services []Service, clusters []Device) *Placement {
			random := rand.New(rand.NewPCG(1, 1))
			best, of, least := make([]int, len(services)), make([]int, len(services)), infinite
			for deadline := time.Now().Add(how.Limit); time.Now().Before(deadline); {
				for i := range of {
					of[i] = random.IntN(len(clusters))
				}
				if v := imbalance(Partition{}, services, of, len(clusters), clusters[0].Memory); v >= 0 && v < least {
					least = v
					copy(best, of)
				}
			}
			plan := &Placement{Services: slices.Clone(services), Devices: clusters}
			for i, j := range best {
				plan.Services[i].Devices = []string{clusters[j].Name}
			}
			return plan
		},
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				var rates, memories []float64
				for seed := range uint64(configurations) {
					rate, memory := find(figure16(seed)).Imbalance()
					rates, memories = append(rates, rate), append(memories, memory)
				}
				slices.Sort(rates)
				slices.Sort(memories)
				for q, name := range []string{"least", "median", "most"} {
					b.ReportMetric(stats.Quantile(rates, float64(q)/2), name+"-rate")
					b.ReportMetric(stats.Quantile(memories, float64(q)/2), name+"-memory")
				}
			}
		})
	}
}

// BenchmarkChange reports the imbalance factor of rates when those of a partition have
// changed, each by a factor with a standard deviation of a half on a logarithmic scale,
// and a part of all static memory may be unloaded and loaded.
func BenchmarkChange(b *testing.B) {
	services, clusters := figure16(0)
	how := Search{Solver: noSolver, Limit: 10 * time.Second}
	before, err := Partition{}.Plan(ctx(), services, clusters, how)
	if err != nil {
		b.Fatal(err)
	}
	random, memory := rand.New(rand.NewPCG(1, 10)), 0.0
	for i := range services {
		services[i].Rate *= math.Exp(0.5 * random.NormFloat64())
		memory += services[i].Memory
	}
	for _, share := range []float64{0, 0.01, 0.05, 0.1, 2} {
		b.Run(fmt.Sprint(share), func(b *testing.B) {
			for range b.N {
				plan, err := Partition{InForce: before, MaxChange: share * memory}.Plan(ctx(), services, clusters, how)
				if err != nil {
					b.Fatal(err)
				}
				rate, memory := plan.Imbalance()
				b.ReportMetric(rate, "rate")
				b.ReportMetric(memory, "memory")
			}
		})
	}
}
