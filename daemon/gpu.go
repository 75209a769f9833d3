package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// errManyInstances is returned when several instances are to be measured by one
// command.
var errManyInstances = errors.New("overlapd profile measures one device: write a configuration for each instance, " +
	"with gpu = \"MIG-…\" and its services, or let overlapd serve measure all of them while it is idle")

// place makes the worker of a service run on the instance's part of the GPU, and
// returns what gives back its share of the part's memory. A service that does
// not fit is refused, and the others serve.
func (d *instance) place(spec *executor.ServiceSpec, s *config.Service, memory *gpu.Ledger) (release func(), err error) {
	release = func() {}
	if spec.Env, err = d.part.Env(s); err != nil {
		return release, err
	}
	spec.Load.CUDA = &wire.CUDASpec{
		MemoryBytes:       d.given(s),
		TF32:              d.config.CUDA.TF32,
		ExtendAsRequested: d.config.CUDA.ArenaExtend == config.ExtendRequested,
	}
	spec.Load.WarmSeqLens = s.SeqLens
	cut := s.Cut
	if spec.Load.Choose = d.question(spec.Load.ModelPath, s); spec.Load.Choose != nil && spec.Load.Choose.Known != nil {
		cut = spec.Load.Choose.Known.Target
	}
	admitted, refused, err := d.admit(spec.Load.ModelPath, s, cut, memory)
	if spec.Refused = refused; admitted != nil {
		release = admitted
	}
	return release, err
}

// given returns how much of the GPU's memory a service may take, 0 for what
// there is.
func (d *instance) given(s *config.Service) int64 {
	limit, own := d.config.CUDA.MemoryLimit, s.MPS.PinnedMemory
	if limit == 0 || own != 0 && own < limit {
		return own
	}
	return limit
}

// admit accounts for a service: what it is given if that is said, else what its
// model is expected to need if it is cut so, 0 standing for the default. It
// returns what gives that back, or why there is no room for it.
func (d *instance) admit(path string, s *config.Service, cut int, memory *gpu.Ledger) (release func(), refused, err error) {
	var m wire.DeviceMemory
	err = surviving(path, func() error {
		f, err := models.Open(path)
		if err != nil {
			return err
		}
		m = wire.ExpectDeviceMemory(f, cut)
		return f.Close()
	})
	if err != nil {
		return nil, nil, nil // the worker says what is wrong with it
	}
	bytes, sums := m.Sum(), m.Sums()
	switch given := d.given(s); {
	case given > 0 && given < bytes:
		return nil, fmt.Errorf("%w %s: it needs %s = %d MiB and is given %d MiB; raise pinned_memory_limit or cuda.memory_limit, or lower its cut",
			gpu.ErrNoRoom, s.Name, sums, bytes>>20, given>>20), nil
	case given > 0:
		bytes, sums = given, "what it is given, for "+sums
	}
	release, refused = memory.Admit(s.Name, bytes, sums)
	return release, refused, nil
}

// PlanGPU returns in words what a daemon with this configuration would do with
// a GPU, and what its services would have of the memory. It changes nothing but
// that models of the zoo are built. On a CPU the text is that.
func PlanGPU(c config.Config, o Options) (text string, err error) {
	g, err := gpu.Choose(context.Background(), c, o.GPU, o.Log)
	if err != nil {
		return "", err
	}
	if g == nil {
		return "no GPU is used\n", nil
	}
	defer func() { err = errors.Join(err, g.Give()) }()
	var b strings.Builder
	b.WriteString(g.String())
	d := &Daemon{config: c, log: o.Log, gpu: g}
	d.divide()
	for _, u := range d.instances {
		if err := u.planMemory(&b); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// planMemory writes who has how much of the memory, and who is refused.
func (d *instance) planMemory(b *strings.Builder) error {
	memory := d.part.Ledger()
	var refusals []error
	for i := range d.config.Services {
		s := &d.config.Services[i]
		path, err := d.model(s.Model)
		if err != nil {
			return fmt.Errorf("service %s: %w", s.Name, err)
		}
		_, refused, err := d.admit(path, s, s.Cut, memory)
		if err != nil {
			return err
		}
		if refused != nil {
			refusals = append(refusals, refused)
		}
	}
	b.WriteString(memory.String())
	for _, r := range refusals {
		fmt.Fprintf(b, "  refused: %v\n", r)
	}
	return nil
}

// watchGPU starts what watches the instance's part of a GPU, if it has one.
func (u *instance) watchGPU() {
	if u.part == nil {
		return
	}
	u.goroutines.Go(func() { u.part.Sample(u.life) })
	if workers, ok := u.exec.(*executor.Executor); ok && u.part.HasMPS() {
		u.goroutines.Go(func() { u.part.Watch(u.life, workers, u.backend.LoseWorkers, u.log) })
	}
}

// beforeKill returns what takes a worker that is to be killed off the GPU, nil
// where there is no MPS.
func (u *instance) beforeKill() func(models.ServiceID, int) {
	if u.part == nil || !u.part.HasMPS() {
		return nil
	}
	return func(id models.ServiceID, pid int) {
		if err := u.part.TerminateClient(u.life, pid); err != nil {
			u.log.Warn().Err(err).Int("service_id", int(id)).Int("pid", pid).
				Msg("a worker is killed that has work on the GPU and could not be taken off it; if others hang now, restart the control daemon of MPS with all workers")
		}
	}
}
