package loop

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/planning/selection"
	"github.com/overlapd/overlapd/segments/wire"
)

// variantRig is the services of a service with variants, on a device that computes nothing. Its
// clock goes on a solve period whenever policies are considered.
type variantRig struct {
	*policies
	t *testing.T
}

// newVariantRig makes the variants of service s, each with a latency of a batch of one. A
// batch takes half of its queries' latencies more. The first is the most accurate: if it is
// the fastest, too, few policies are calculated, which is slow under the race detector.
func newVariantRig(t *testing.T, latencies ...time.Duration) *variantRig {
	t.Helper()
	e := &env{options: Options{Goroutines: new(sync.WaitGroup), Life: t.Context()}, log: zerolog.Nop(), mail: newMailbox()}
	e.config.Worker.InputBytes = 1 << 12
	f := &services{env: e, families: map[string]*family{}}
	var operators []int
	for range latencies {
		operators = append(operators, 1)
	}
	if err := e.place([]Device{{Text: "here", Kind: "here"}}, operators); err != nil {
		t.Fatal(err)
	}
	for i, latency := range latencies {
		id := models.ServiceID(i)
		for size := 1; size <= 128; size *= 2 {
			if err := e.kinds[0].solo.SetOperators(id, size, 0, []int64{int64(latency) * int64(size+1) / 2}); err != nil {
				t.Fatal(err)
			}
		}
		s := config.Service{Name: fmt.Sprintf("s/v%d", i), Target: 200 * time.Millisecond, MaxBatch: 1,
			Variants: []config.Variant{{Name: fmt.Sprintf("v%d", i), Accuracy: 70 - float64(i)}}}
		m := newService(&s, []Place{{Share: "1 threads"}}, 1)
		if err := f.furnish(m, id); err != nil {
			t.Fatal(err)
		}
		m.info = &wire.Info{Hash: fmt.Sprintf("hash%d", i), ORTVersion: "1", Operators: make([]models.Operator, 1)}
		f.list, f.specs = append(f.list, m), append(f.specs, scheduled(id, &s))
	}
	f.publish()
	t.Cleanup(func() {
		for _, m := range f.list {
			if err := f.closeInputs(m); err != nil {
				t.Error(err)
			}
		}
	})
	return &variantRig{&policies{e, f}, t}
}

// configure changes what the configuration says of all variants, as a reload does that needs
// no worker.
func (r *variantRig) configure(change func(s *config.Service)) {
	for i, m := range r.services.list {
		change(&m.config)
		r.services.specs[i] = scheduled(models.ServiceID(i), &m.config)
	}
	r.services.publish()
}

// minute lets a solve period pass, and has the policies of the family considered.
func (r *variantRig) minute() *family {
	r.env.mail.epoch = r.env.mail.epoch.Add(-solvePeriod)
	of := r.services.families["s"]
	if r.consider(of); of.solving {
		(<-r.env.mail.inbox).ask()
	}
	r.env.options.Goroutines.Wait()
	return of
}

// A reload to batches that are larger than a policy looks ahead changes nothing about the
// policy, whatever the two were before.
func TestPolicyAfterLargerBatches(t *testing.T) {
	r := newVariantRig(t, 2*time.Millisecond, 4*time.Millisecond)
	for _, most := range []int{32, 64, 1} {
		r.configure(func(s *config.Service) { s.MaxBatch = most })
		if of := r.minute(); of.refused != nil || of.live.Set() == nil {
			t.Fatalf("max_batch %d: %v", most, of.refused)
		}
		if r.minute(); r.services.Select("s", most, time.Second) == "" {
			t.Errorf("max_batch %d: no variant is selected", most)
		}
	}
}

// Whatever a policy file holds, and however the configuration changes between two looks at it,
// nothing panics and whoever is selected is a variant that serves: the scheduler goroutine ends
// the daemon otherwise.
func TestPoliciesNeverPanic(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	r := newVariantRig(t, 2*time.Millisecond, 4*time.Millisecond, 9*time.Millisecond)
	steps, solved, read := 200, 0, 0
	if testing.Short() {
		steps = 50
	}
	for step := range steps {
		file := filepath.Join(t.TempDir(), "policies.json")
		r.configure(func(s *config.Service) {
			s.MaxBatch = 1 << random.IntN(8)
			s.Target = time.Duration(1+random.IntN(300)) * time.Millisecond
		})
		calculated := random.IntN(50) == 0
		order := float64(2*random.IntN(2) - 1)
		if calculated {
			order = -1
		}
		for i, m := range r.services.list {
			m.config.Variants[0].Accuracy = 70 + order*float64(i)
		}
		for i, m := range r.services.list {
			m.info.Hash = fmt.Sprintf("hash%d.%d", i, random.IntN(2))
			if m.state = stateServing; random.IntN(8) == 0 {
				m.state = stateRetiring
			}
		}
		r.services.publish()
		w, ok := r.worker(r.services.families["s"])
		if ok {
			r.write(random, w, file)
		}
		r.configure(func(s *config.Service) {
			if s.Selection = file; calculated {
				s.Selection = ""
			}
			if random.IntN(8) == 0 {
				s.MaxBatch = 1 << random.IntN(8)
			}
		})
		for range 2 {
			of := r.minute()
			set := of.live.Set()
			if ok && set != nil {
				_ = set.Drifted(&w)
			}
			switch {
			case set != nil && of.file == "":
				solved++
			case set != nil:
				read++
			}
		}
		for _, waiting := range []int{math.MinInt, -1, 0, 1, 2, 32, 33, 128, math.MaxInt} {
			for _, slack := range []time.Duration{math.MinInt64, -1, 0, 1, time.Millisecond, 300 * time.Millisecond, math.MaxInt64} {
				name := r.services.Select("s", waiting, slack)
				if name != "" && !slices.ContainsFunc(r.services.served(), func(m *service) bool { return m.config.Name == name }) {
					t.Fatalf("step %d: %q is selected, which does not serve", step, name)
				}
			}
		}
	}
	if read < steps/10 {
		t.Errorf("policies were read in %d steps of %d, and solved in %d: the test tries too little", read, steps, solved)
	}
}

// write writes a policy file for a worker, or for one that is a little like it, which may be
// damaged.
func (r *variantRig) write(random *rand.Rand, w selection.Worker, file string) {
	w.Queue, w.Levels, w.Drop, w.Workers = 1+random.IntN(6), random.IntN(4), random.IntN(2) == 0, 1
	w.Variants = slices.Clone(w.Variants)
	for i := range w.Variants {
		v := &w.Variants[i]
		v.Latency = slices.Repeat(v.Latency, 4)[:w.Queue+random.IntN(100)]
		if random.IntN(12) == 0 {
			v.Name, v.Hash = fmt.Sprintf("other%d", i), ""
		}
	}
	set, err := w.SolveSet(r.t.Context(), 1, 1, nil)
	if err != nil {
		return // nobody is in time; there is no file
	}
	if err := set.WriteFile(file); err != nil {
		r.t.Fatal(err)
	}
	if random.IntN(2) == 0 {
		return
	}
	data, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	for range 1 + random.IntN(3) {
		data[random.IntN(len(data))] = "0123456789-.,[]{}"[random.IntN(17)]
	}
	if random.IntN(8) == 0 {
		data = data[:random.IntN(len(data))]
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		r.t.Fatal(err)
	}
}
