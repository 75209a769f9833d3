package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/segments/wire"
)

// sizesRow is what a batch size costs a model, alone and after another size. Times are
// medians but for the first one.
type sizesRow struct {
	Model     string  `json:"model"`
	Way       string  `json:"way,omitempty"` // "" as usual
	Batch     int     `json:"batch"`
	Other     int     `json:"other"`    // the batch size of the runs before AfterMS
	FirstMS   float64 `json:"first_ms"` // of the very first run of this size after loading
	Rounds    int     `json:"rounds"`
	AloneMS   float64 `json:"alone_ms"`   // after a run of the same size
	AfterMS   float64 `json:"after_ms"`   // after a run of the other size
	DeviceMiB float64 `json:"device_mib"` // of the whole GPU, while all services are loaded
}

// changePercent is what the change costs, of a run.
func (r *sizesRow) changePercent() float64 { return 100 * (r.AfterMS/r.AloneMS - 1) }

// bothSizes returns two batch sizes to be changed between.
func (c *check) bothSizes() [2]int { return [2]int{c.batches[0], max(c.batches[len(c.batches)-1], 2)} }

// measureSizes runs each service with two batch sizes: each for the first time, and then
// twice each in turns, so that the first of two follows the other size. On a GPU it does
// so again in other ways, which show what the usual one spares.
func (c *check) measureSizes(ctx context.Context) error {
	both := c.bothSizes()
	ways := []sizesWay{
		{name: "", both: both},
		{name: "off the ladder", both: [2]int{both[1] - 1, both[1]}}, // they share sessions
		{name: "as CUDA graphs", both: both, gpu: wire.CUDASpec{Graphs: true}},
		{name: "with a small workspace", both: both, env: "CUBLAS_WORKSPACE_CONFIG=:16:8"}, // takes an eighth of the memory
	}
	if c.rehearsal() {
		ways = ways[:1] // the CPU has none of them
	}
	c.rest = len(ways) * len(c.services)
	for i, way := range ways {
		if err := c.sizesIn(ctx, way, time.Now().Add(timeLeft(ctx)/time.Duration(len(ways)-i))); err != nil {
			return err
		}
	}
	return nil
}

// sizesWay is how two sizes are measured.
type sizesWay struct {
	name string
	both [2]int
	gpu  wire.CUDASpec
	env  string // a further variable of the workers, "" for none
}

func (c *check) sizesIn(ctx context.Context, way sizesWay, end time.Time) (err error) {
	env := c.workerEnv(ctx)
	if way.env != "" {
		env = append(slices.Clone(env), way.env)
	}
	w, err := c.startWorkersWith(ctx, env, c.services, way.both[1], way.gpu)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	for i := range c.services {
		limit := time.Until(end) / time.Duration(len(c.services)-i+1) // one more, so that ending fits in
		if err := c.sizesOf(ctx, w, i, way, limit); err != nil {
			return err
		}
		c.rest--
	}
	return nil
}

// sizesOf keeps what it has of a service also where a run fails or the time is over.
func (c *check) sizesOf(ctx context.Context, w *workers, service int, way sizesWay, limit time.Duration) error {
	var first [2]time.Duration
	var alone, after [2][]float64
	end := time.Now().Add(limit)
	var failed error
	for n := -1; failed == nil && n < c.rounds && (n < minRounds || time.Now().Before(end)); n++ {
		for i, batch := range way.both {
			var changed, same time.Duration
			if changed, failed = w.run(ctx, part{service: service, batch: batch}); failed == nil {
				same, failed = w.run(ctx, part{service: service, batch: batch})
			}
			if failed != nil {
				break
			}
			if n < 0 {
				first[i] = changed
				continue
			}
			alone[i], after[i] = append(alone[i], milliseconds(same)), append(after[i], milliseconds(changed))
		}
	}
	var memory soakRow
	failed = errors.Join(failed, memory.look(c, w.pids[service]))
	for i, batch := range way.both {
		if len(alone[i]) == 0 {
			continue
		}
		r := sizesRow{
			Model: c.services[service], Way: way.name, Batch: batch, Other: way.both[1-i], FirstMS: milliseconds(first[i]), Rounds: len(alone[i]),
			AloneMS: stats.Median(alone[i]), AfterMS: stats.Median(after[i]), DeviceMiB: memory.DeviceMiB,
		}
		keep(c, &c.mu.Sizes, r)
		if way.name != "" {
			c.see([]string{"E24"}, "see", "%s %s, batch %d: %.3f ms alone, %.3f ms after batch %d; %.0f MiB of the GPU are used", r.Model, way.name, r.Batch, r.AloneMS, r.AfterMS, r.Other, r.DeviceMiB)
			continue
		}
		c.expect([]string{"E24"}, r.changePercent() <= wantChange, "%s, batch %d: %.3f ms alone, %.3f ms after batch %d", r.Model, r.Batch, r.AloneMS, r.AfterMS, r.Other)
		c.expect([]string{"E23", "E25"}, r.FirstMS <= (1+slower)*r.AfterMS, "%s, batch %d: %.3f ms at first, %.3f ms later", r.Model, r.Batch, r.FirstMS, r.AfterMS)
	}
	return failed
}

// wakeRow is what one operator takes after a pause in which the device had nothing to do.
// Times are medians.
type wakeRow struct {
	Model    string  `json:"model"`
	PauseMS  float64 `json:"pause_ms"`
	Runs     int     `json:"runs"`
	HostMS   float64 `json:"host_ms"`
	DeviceMS float64 `json:"device_ms"` // between events; 0 on the CPU
}

// measureWaking runs the first operator of the first service after pauses. What the host
// takes longer than the device is launching and waking up; what the device takes longer
// after a long pause are clocks and contexts that had gone to sleep.
func (c *check) measureWaking(ctx context.Context) (err error) {
	w, err := c.startWorkers(ctx, c.workerEnv(ctx), c.services[:1], 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	pauses := []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second}
	each := min(timeLeft(ctx)/time.Duration(len(pauses)+1), 2*time.Second)
	if c.rehearsal() {
		pauses, each = pauses[:4], min(each, 200*time.Millisecond)
	}
	c.rest = len(pauses)
	for _, pause := range pauses {
		r := wakeRow{Model: c.services[0], PauseMS: milliseconds(pause)}
		var host, device []float64
		for end := time.Now().Add(each); len(host) == 0 || len(host) < c.rounds && time.Now().Before(end); {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause):
			}
			took, err := w.run(ctx, part{batch: 1, end: 1})
			if err != nil {
				return err
			}
			host, device = append(host, milliseconds(took)), append(device, milliseconds(w.device))
		}
		c.rest--
		r.Runs, r.HostMS, r.DeviceMS = len(host), stats.Median(host), stats.Median(device)
		keep(c, &c.mu.Wake, r)
		c.see([]string{"E17"}, "see", "one operator after %v: %.3f ms for the host, %.3f ms between events", pause, r.HostMS, r.DeviceMS)
	}
	return nil
}

// soakRow is the memory of one service's worker after some runs.
type soakRow struct {
	Service     string  `json:"service"`
	Seconds     float64 `json:"seconds"`
	Runs        int     `json:"runs"`
	ResidentMiB float64 `json:"resident_mib"`
	PinnedMiB   float64 `json:"pinned_mib"` // that the kernel may not move, or not swap
	DeviceMiB   float64 `json:"device_mib"` // of the whole GPU, 0 on the CPU
	GrownMiB    float64 `json:"grown_mib"`  // since the first row: the most of the three
}

// leak is what a run leaves behind, in KiB.
func (r *soakRow) leak() float64 { return 1024 * r.GrownMiB / float64(max(r.Runs, 1)) }

// soakServices runs all services together again and again, and looks at their memory now
// and then. What grows before the first look is what a worker keeps for later batches.
func (c *check) soakServices(ctx context.Context) (err error) {
	const looks = 5
	w, err := c.startWorkers(ctx, c.workerEnv(ctx), c.services, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	var parts []part
	for i := range c.services {
		parts = append(parts, part{service: i, batch: 1})
	}
	each := min(c.soak, timeLeft(ctx)*2/3) / looks
	began, runs := time.Now(), 0
	base := make([]soakRow, len(parts))
	defer func() {
		for _, r := range c.mu.Soak[max(len(c.mu.Soak)-len(parts), 0):] {
			if r.Runs > 0 {
				c.expect([]string{"E27"}, r.leak() <= wantLeak, "%s: %.2f KiB a run, %d runs", r.Service, r.leak(), r.Runs)
			}
		}
	}()
	for look := range looks + 1 {
		c.rest = looks + 1 - look
		for end := time.Now().Add(each); time.Now().Before(end); runs++ {
			if _, err := w.run(ctx, parts...); err != nil {
				return err
			}
		}
		for i, m := range c.services {
			r := soakRow{Service: m, Seconds: time.Since(began).Seconds(), Runs: runs}
			if err := r.look(c, w.pids[i]); err != nil {
				return err
			}
			if look == 0 {
				base[i] = r
			}
			r.Runs -= base[i].Runs
			r.GrownMiB = max(r.ResidentMiB-base[i].ResidentMiB, r.PinnedMiB-base[i].PinnedMiB, r.DeviceMiB-base[i].DeviceMiB)
			keep(c, &c.mu.Soak, r)
		}
	}
	c.rest = 0
	return nil
}

// look reads the memory of a worker, and of the GPU.
func (r *soakRow) look(c *check, pid int) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		var kib float64
		switch name, value, _ := strings.Cut(line, ":"); name {
		case "VmRSS", "VmPin", "VmLck":
			if _, err := fmt.Sscan(value, &kib); err != nil {
				return fmt.Errorf("%s of process %d: %w", name, pid, err)
			}
			if name == "VmRSS" {
				r.ResidentMiB = kib / 1024
			} else {
				r.PinnedMiB += kib / 1024
			}
		}
	}
	if c.rehearsal() {
		return nil
	}
	host, err := c.nvml()
	if err != nil {
		return err
	}
	defer host.Close()
	s, err := host.Sample(c.gpu)
	if err == nil && s.Memory.Known {
		r.DeviceMiB = float64(s.Memory.Value.Used) / (1 << 20)
	}
	return err
}
