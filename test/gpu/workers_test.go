package gpu

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/cuda/mps"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

const (
	// loadTimeout bounds loading a model from a cold disk, its kernels included.
	loadTimeout = 2 * time.Minute

	// spanTimeout bounds one span; none of what is measured comes near.
	spanTimeout = 20 * time.Second

	// poll is for how long check and worker look for each other's next message, as
	// in a daemon's default configuration.
	poll = 200 * time.Microsecond

	// terminateGrace is how long MPS may take to end the work of a client.
	terminateGrace = 3 * time.Second

	// warmups is how often a batch runs before it is timed.
	warmups = 3
)

// workers run the services of a check, each in a process of its own, without a
// daemon: the test says what runs together, and no scheduler decides it.
type workers struct {
	exec   *executor.Executor
	arenas []*wire.InputArena // by service
	infos  []wire.Info        // by service, from when it is ready
	pids   []int              // by service
	device time.Duration      // of the first span of the last round, between events of a GPU
	news   chan executor.Event
	round  uint64
	batch  models.BatchID
	seqLen int
	inputs map[part][]models.Tensor // by service and batch size
}

// part is what one service has in a group: operators [0, end) of a batch, all of
// them if end is 0.
type part struct{ service, batch, end int }

// startWorkers starts a worker for each service and waits until all are ready.
// The environment is that of the workers, nil for ours. Batches of up to maxBatch are
// warmed up; larger ones warm up when they are measured: a GPU takes seconds for each.
func (c *check) startWorkers(ctx context.Context, env, services []string, maxBatch int) (*workers, error) {
	return c.startWorkersWith(ctx, env, services, maxBatch, c.cudaSpec())
}

// startWorkersWith starts them with other options of a GPU than the usual ones.
func (c *check) startWorkersWith(ctx context.Context, env, services []string, maxBatch int, gpu wire.CUDASpec) (w *workers, err error) {
	gpu.TF32 = c.tf32()
	w = &workers{
		infos:  make([]wire.Info, len(services)),
		pids:   make([]int, len(services)),
		news:   make(chan executor.Event, 4*len(services)), // each is ready once or lost once
		seqLen: c.seqLen, inputs: map[part][]models.Tensor{},
	}
	o := executor.Options{
		Command:     []string{c.program, "worker"},
		LoadTimeout: loadTimeout, SpanTimeout: spanTimeout, Poll: poll, Policy: child.Policy{RestartLimit: 1}, Events: w.event,
		BeforeKill: c.beforeKill(env),
	}
	for i, m := range services {
		spec := wire.LoadSpec{Service: m, CacheDir: c.cache, Threads: 1, CutTarget: c.cutOf(m), MaxBatch: maxBatch}
		if spec.ModelPath, err = c.model(m); err != nil {
			return nil, err
		}
		if !c.rehearsal() {
			spec.CUDA, spec.WarmSeqLens = &gpu, []int{c.seqLen}
		}
		arena, err := wire.NewInputArena(256<<20, spec.CUDA != nil)
		if err != nil {
			return nil, err
		}
		w.arenas = append(w.arenas, arena)
		o.Services = append(o.Services, executor.ServiceSpec{
			ID: models.ServiceID(i), Name: m, Load: spec, Inputs: arena, OutputBytes: 256 << 20, Env: env,
		})
	}
	if w.exec, err = executor.New(o); err != nil {
		return nil, err
	}
	if err := w.exec.Start(context.Background()); err != nil {
		return nil, errors.Join(err, w.exec.Close())
	}
	if err := w.await(ctx); err != nil {
		return nil, errors.Join(err, w.stop())
	}
	return w, nil
}

// beforeKill returns what takes a worker off the GPU before it is killed: one that has work
// there may leave the MPS server of all unusable. It is nil for workers without MPS.
func (c *check) beforeKill(env []string) func(models.ServiceID, int) {
	if c.control == nil || variable(env, pipeVariable) != variable(c.control.ClientEnv(mps.Limits{}), pipeVariable) {
		return nil
	}
	return func(_ models.ServiceID, pid int) {
		ctx, cancel := context.WithTimeout(context.Background(), terminateGrace)
		defer cancel()
		if err := c.control.TerminateClient(ctx, pid); err != nil {
			c.top.Logf("worker %d is killed with work on the GPU, and MPS did not end that: %v", pid, err)
		}
	}
}

// cudaSpec returns the options of a GPU that daemons and workers have in common.
func (c *check) cudaSpec() wire.CUDASpec { return wire.CUDASpec{TF32: c.tf32(), Graphs: *graphsFlag} }

// tf32 is whether daemons use TF32, so that workers do the same.
func (c *check) tf32() bool { return config.Default().CUDA.TF32 }

// event passes on what await wants to know. There is room for all of it.
func (w *workers) event(e executor.Event) {
	switch e.Kind {
	case executor.WorkerReady, executor.WorkerLost:
		select {
		case w.news <- e:
		default: // lost again and again: await has the first
		}
	}
}

func (w *workers) await(ctx context.Context) error {
	for range w.infos {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-w.news:
			switch e.Kind {
			case executor.WorkerReady:
				w.infos[e.Service], w.pids[e.Service] = *e.Info, e.PID
			case executor.WorkerLost:
				return e.Err
			}
		}
	}
	return nil
}

// stop ends the workers.
func (w *workers) stop() error {
	for p, tensors := range w.inputs {
		_ = w.arenas[p.service].Free(tensors[0].Offset) // it was allocated there
	}
	// Outcomes that nobody received would keep their outputs.
	done := make(chan error, 1)
	go func() { done <- w.exec.Close() }()
	for o := range w.exec.Outcomes() {
		release(&o)
	}
	err := <-done
	for _, a := range w.arenas {
		_, cerr := a.Close()
		err = errors.Join(err, cerr)
	}
	return err
}

// run runs the parts as one round and returns how long it took.
func (w *workers) run(ctx context.Context, parts ...part) (time.Duration, error) {
	requests := make([]executor.SpanRequest, len(parts))
	for i, p := range parts {
		tensors, err := w.inputsOf(p)
		if err != nil {
			return 0, err
		}
		info := &w.infos[p.service]
		if p.end == 0 {
			p.end = len(info.Operators)
		}
		w.batch++
		span := models.Span{Service: models.ServiceID(p.service), Batch: w.batch, End: p.end, Size: p.batch}
		if models.HasSeqLen(info.Inputs) {
			span.SeqLen = w.seqLen
		}
		requests[i] = executor.SpanRequest{Span: span, Queries: []wire.QueryTensors{{ID: models.QueryID(w.batch), Inputs: tensors}}}
	}
	w.round++
	if err := w.exec.Run(w.round, requests); err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case o := <-w.exec.Outcomes():
		return o.Took, w.settle(&o)
	}
}

// settle gives back what a round left, and returns what went wrong in it.
func (w *workers) settle(o *executor.Outcome) error {
	release(o)
	var faults []error
	w.device = o.Spans[0].DeviceTook
	for i := range o.Spans {
		s := &o.Spans[i]
		if s.Status != models.SpanDone {
			faults = append(faults, fmt.Errorf("a span of service %d is %s: %w", s.Span.Service, s.Status, s.Err))
		} else if !s.Finished {
			w.exec.Release(s.Span.Service, s.Span.Batch)
		}
	}
	return errors.Join(faults...)
}

func release(o *executor.Outcome) {
	for i := range o.Spans {
		for j := range o.Spans[i].Queries {
			o.Spans[i].Queries[j].Release()
		}
	}
}

// inputsOf returns inputs of zeros. They are made once: a worker only reads them,
// and has one batch at a time.
func (w *workers) inputsOf(p part) ([]models.Tensor, error) {
	p.end = 0
	if t, ok := w.inputs[p]; ok {
		return t, nil
	}
	specs := w.infos[p.service].Inputs
	var tensors []models.Tensor
	var sum int64
	for i, shape := range models.Fill(specs, p.batch, w.seqLen) {
		elem := specs[i].Type.Elem
		bytes := int64(elem.Bytes())
		for _, d := range shape {
			bytes *= d
		}
		if bytes == 0 {
			return nil, fmt.Errorf("input %q is %s, which cannot be made up", specs[i].Name, specs[i].Type)
		}
		tensors = append(tensors, models.Tensor{Type: elem, Shape: shape, Offset: sum, Bytes: bytes})
		sum += (bytes + wire.ArenaAlign - 1) / wire.ArenaAlign * wire.ArenaAlign
	}
	offset, data, err := w.arenas[p.service].Alloc(sum)
	if err != nil {
		return nil, fmt.Errorf("memory for inputs of batch size %d: %w", p.batch, err)
	}
	clear(data)
	for i := range tensors {
		tensors[i].Offset += offset
	}
	w.inputs[p] = tensors
	return tensors, nil
}
