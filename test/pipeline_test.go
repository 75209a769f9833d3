package test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// pixels is a query of a picture for tiny_cnn.
func pixels(random *rand.Rand) query {
	const values = 3 * 32 * 32
	data := make([]float64, values)
	for i := range data {
		data[i] = float64(float32(random.Float64()))
	}
	return query{Inputs: []tensor{{Name: "input", Shape: []int64{1, 3, 32, 32}, Datatype: "FP32", Data: data}}}
}

// operators returns into how many operators the worker that was ready first has cut its model.
func (p *process) operators() int {
	var found []string
	p.eventually("a worker", func() bool {
		found = regexp.MustCompile(`"operators":(\d+)`).FindStringSubmatch(p.logged())
		return found != nil
	})
	n, err := strconv.Atoi(found[1])
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// pipelines writes a plan that has a model of so many operators start on one core and end on
// the other, in batches of a size.
func pipelines(t *testing.T, path, first, last string, operators, batch int) {
	const form = `{"format":"overlapd-placement/1","kind":"pipeline","objective":1,"bound":1,"solver":"heuristic","seconds":0,"made":"2026-01-02T03:04:05Z",
"devices":[{"name":"left","memory_mib":100,"speed":1,"load":0},{"name":"right","memory_mib":100,"speed":1,"load":0}],
"services":[{"name":"cnn","memory_mib":1,"rate":1,"load":1,"devices":["left","right"],"operators":%[1]d,"pipelines":[
{"batch":%[3]d,"rate":1,"latency_ms":3,"stages":[{"start":0,"end":%[2]d,"devices":[%[4]q],"share":1,"time_ms":1,"move_us":100},{"start":%[2]d,"end":%[1]d,"devices":[%[5]q],"share":1,"time_ms":1}]}]}]}`
	if err := os.WriteFile(path, fmt.Appendf(nil, form, operators, operators/2, batch, first, last), 0o600); err != nil {
		t.Fatal(err)
	}
}

// piped starts a daemon whose batches start on one core and end on another one, and one whose
// batches stay where they start. It skips the test if there are not two cores.
func piped(t *testing.T, policy string, batch int) (with, without *process, plan string) {
	cores := twoCores(t)
	if cores == "" {
		t.Skip("it takes two cores")
	}
	c := config{worker: restarts, tables: cores, services: []service{{"cnn", "zoo:tiny_cnn", "max_batch = 4"}}}
	without = serve(t, c)
	plan = filepath.Join(t.TempDir(), "plan.json")
	pipelines(t, plan, "right", "left", without.operators(), batch)
	c.dir, c.top = "", fmt.Sprintf("policy = %q\nplan = %q", policy, plan)
	with = serve(t, c)
	with.eventually("the plan", func() bool { return with.count(func(e event) bool { return e.Message == "plan followed" }) == 1 })
	return with, without, plan
}

// What goes through two devices is what one of them gives, to the bit.
func TestPipelineGivesTheSame(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"edf", "overlap"} {
		t.Run(policy, func(t *testing.T) {
			with, without, _ := piped(t, policy, 4)
			random := rand.New(rand.NewPCG(1, 2))
			var all sync.WaitGroup
			for range 40 {
				q := pixels(random)
				all.Go(func() {
					got, want := with.inferBinary("cnn", q), without.inferBinary("cnn", q)
					if got.Status != 200 || want.Status != 200 || !slices.Equal(got.Outputs[0].Data, want.Outputs[0].Data) {
						t.Errorf("%v, want %v", got, want)
					}
				})
			}
			all.Wait()
			m := with.metrics()
			if m[`overlapd_moves_total{service="cnn"}`] == 0 || m[`overlapd_moves_lost_total{service="cnn"}`] != 0 {
				t.Errorf("%v batches moved, %v were lost", m[`overlapd_moves_total{service="cnn"}`], m[`overlapd_moves_lost_total{service="cnn"}`])
			}
		})
	}
}

// The workers of a pipeline are killed at random, under load: every query has one answer, the
// right one.
func TestKilledPipeline(t *testing.T) {
	t.Parallel()
	p, without, _ := piped(t, "overlap", 1)
	seeds := rand.New(rand.NewPCG(3, 4))
	stop := p.loadPipeline(without, seeds)
	moves := func() float64 { return p.metrics()[`overlapd_moves_total{service="cnn"}`] }
	before := 0.0
	goes := func() {
		t.Helper()
		p.eventually("batches that move", func() bool { return moves() > before+10 })
		before = moves()
	}
	for range max(fewer(20), 6) {
		goes()
		var pid int
		side := []string{"left", "right"}[seeds.IntN(2)]
		p.eventually("the worker on the "+side, func() bool { pid = p.workerOn("cnn", side); return pid != 0 })
		if err := sendSignal(pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	goes()
	answered := stop()
	t.Logf("%d answered; %v batches moved, %v were lost on their way", answered, moves(), p.metrics()[`overlapd_moves_lost_total{service="cnn"}`])
}

// loadPipeline asks a daemon again and again, and fails the test unless each answer is that
// of another one. It returns how many there were when it is stopped.
func (p *process) loadPipeline(without *process, seeds *rand.Rand) (stop func() int64) {
	asked, want := make([]query, 8), make([][]float64, 8)
	for i := range asked {
		asked[i] = pixels(seeds)
		want[i] = without.inferBinary("cnn", asked[i]).Outputs[0].Data
	}
	var over atomic.Bool
	var answered atomic.Int64
	load := make(chan struct{})
	go func() {
		defer close(load)
		crowd(6, func(_ int, random *rand.Rand) {
			for !over.Load() {
				i := random.IntN(len(asked))
				if a := p.inferBinary("cnn", asked[i]); a.Status != 200 || !slices.Equal(a.Outputs[0].Data, want[i]) {
					p.t.Errorf("%v", a)
					return
				}
				answered.Add(1)
			}
		})
	}()
	return func() int64 {
		over.Store(true)
		<-load
		return answered.Load()
	}
}

// A reload turns the pipeline round under load, and takes it away: no query is dropped.
func TestReloadPipeline(t *testing.T) {
	t.Parallel()
	p, without, plan := piped(t, "edf", 1)
	stop := p.loadPipeline(without, rand.New(rand.NewPCG(5, 6)))
	rounds := func(device string) float64 { return p.metrics()[`overlapd_rounds_total{device="`+device+`"}`] }
	for turn, ends := range [][2]string{{"left", "right"}, {"right", "left"}, {"left", "right"}} {
		pipelines(t, plan, ends[0], ends[1], without.operators(), 1)
		p.signal(syscall.SIGHUP)
		p.eventually("the new plan", func() bool {
			return p.count(func(e event) bool { return e.Message == "plan followed" }) == turn+2
		})
		before := rounds("left")
		p.eventually("rounds by the new plan", func() bool { return rounds("left") > before+20 })
	}
	answered := stop()
	if m := p.metrics(); answered == 0 || m[`overlapd_queries_retried_total{service="cnn"}`] > 0 {
		t.Errorf("%d were answered, %v of them were run again", answered, m[`overlapd_queries_retried_total{service="cnn"}`])
	}
}
