package gpucheck

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
)

// Limits of a check.
const (
	minBudget = time.Second
	maxBudget = time.Hour
	maxBatch  = 256
)

// services is how many services are paired, profiled and loaded.
const services = 3

// Options say what is checked, on what. DefaultOptions and Rehearsal fill in all
// but Out, CacheDir, Command and the paths of the models.
type Options struct {
	Device  string // cutcost.CPU or cutcost.CUDA
	GPU     string // which: index, UUID or PCI address
	MPS     string // path of nvidia-cuda-mps-control, "" looks in PATH
	Threads int    // intra-op threads of each process

	Models   []Model // whose outputs are compared with the CPU's
	Services []Model // three that run together

	Batches       []int // of cutting and of pairs
	Granularities []int // operators wanted, 0 for one at every node
	SeqLen        int

	Budget  time.Duration // of all steps together
	Spent   time.Duration // before the first step, for the report
	Profile time.Duration // of measuring groups, at most
	Groups  int           // that are measured, at most
	Load    time.Duration // of load, all policies together
	Turn    time.Duration // of one policy before the next has its turn

	Policies   []string
	LoadFactor float64 // work offered: 1 keeps the device busy one batch after another
	MaxRate    float64 // requests a second, all services together, that are never exceeded
	Targets    float64 // the QoS target is the time alone, so many times
	Seed       uint64

	Out      string   // folder of the results
	CacheDir string   // of optimized models
	Command  []string // argv of overlapd
	Machine  string   // what the CPU is, in words
	Version  string
	Commit   string
	Progress func(string) // is told what is done; may be nil
}

// Model is a model by its name and its file.
type Model struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// DefaultOptions returns what suits a GPU and takes less than eight minutes.
func DefaultOptions() Options {
	return Options{
		Device:  cutcost.CUDA,
		GPU:     "0",
		Threads: 1,
		Models: named("tiny_add", "tiny_mlp", "tiny_cnn", "tiny_bert", "resnet50", "resnet50-fp16", "bert", "bert-fp16",
			"inception_v3", "inception_v3-fp16", "vgg16", "vgg16-fp16"),
		Services:      named("resnet50", "inception_v3", "bert"),
		Batches:       []int{1, 8},
		Granularities: []int{0, 64, 16, 4},
		SeqLen:        64,
		Budget:        440 * time.Second, // the sum of the steps' limits
		Profile:       2 * time.Minute,
		Groups:        1500,
		Load:          time.Minute,
		Turn:          5 * time.Second,
		Policies:      []string{"fcfs", "edf", "abacus", "overlap"},
		LoadFactor:    1,
		MaxRate:       2000,
		Targets:       4,
		Seed:          1,
	}
}

// Rehearsal returns what runs every step on the CPU, with the smallest models.
func Rehearsal() Options {
	o := DefaultOptions()
	o.Device, o.GPU = cutcost.CPU, ""
	o.Models = named("tiny_add", "tiny_identity", "tiny_mlp", "tiny_cnn", "tiny_bert")
	o.Services = named("tiny_cnn", "tiny_bert", "tiny_mlp")
	o.Batches = []int{1, 4}
	o.Granularities = []int{0, 4}
	o.SeqLen = 16
	o.Budget = 3 * time.Minute
	o.Profile = 40 * time.Second
	o.Groups = 600
	o.Load = 32 * time.Second
	o.Turn = 2 * time.Second
	o.LoadFactor, o.MaxRate, o.Targets = 0.5, 400, 20
	return o
}

func named(names ...string) []Model {
	list := make([]Model, len(names))
	for i, n := range names {
		list[i].Name = n
	}
	return list
}

// Check returns everything that is wrong with the options, or nil.
func (o *Options) Check() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(o.Device == cutcost.CPU || o.Device == cutcost.CUDA, "device %q: there are %s and %s", o.Device, cutcost.CPU, cutcost.CUDA)
	check(len(o.Services) == services, "%d services: it takes %d to pair", len(o.Services), services)
	seen := map[string]bool{}
	for _, s := range o.Services {
		check(!seen[s.Name], "service %s is named twice: a pair would be a model with itself", s.Name)
		seen[s.Name] = true
	}
	check(len(o.Models) > 0, "no models whose outputs are compared")
	check(slices.Contains(o.Batches, 1), "batch sizes %v: 1 must be among them, since load comes one query at a time", o.Batches)
	for _, b := range o.Batches {
		check(b >= 1 && b <= maxBatch, "batch size %d: want 1 to %d", b, maxBatch)
	}
	check(len(o.Granularities) > 0, "no granularities: name how many operators a model is cut into, 0 for every node")
	for _, g := range o.Granularities {
		check(g >= 0, "%d operators: want 0 for every node, or more", g)
	}
	check(o.Budget >= minBudget && o.Budget <= maxBudget, "budget %v: want %v to %v", o.Budget, minBudget, maxBudget)
	check(o.Profile > 0 && o.Load > 0 && o.Turn > 0, "profile %v, load %v and turn %v must be more than 0", o.Profile, o.Load, o.Turn)
	check(o.Groups >= 1, "%d groups: want 1 or more", o.Groups)
	check(len(o.Policies) > 0, "no policies")
	check(o.LoadFactor > 0 && o.MaxRate > 0 && o.Targets >= 1, "load factor %g, most requests %g and target factor %g: want more than 0, more than 0, and 1 or more", o.LoadFactor, o.MaxRate, o.Targets)
	check(o.SeqLen >= 1 && o.Threads >= 1, "sequence length %d and threads %d: want 1 or more", o.SeqLen, o.Threads)
	check(o.Out != "" && o.CacheDir != "" && len(o.Command) > 0, "a folder for the results, one for optimized models and the command are needed")
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrOptions, errors.Join(faults...))
}
