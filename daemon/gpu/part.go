package gpu

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mps"
	"github.com/overlapd/overlapd/daemon/config"
)

// Part is what one group of services runs on: a GPU or one MIG instance. Two parts
// with the same Text, which is name, compute capability, MIG profile and whether MPS
// shares it, take the same time for a model, and for several together. An instance that is not there yet has no UUID, and a GPU
// no profile.
type Part struct {
	Text     string
	UUID     string
	Profile  string
	Services []string

	host    *cuda.Host
	memory  int64 // free bytes, or unknownMemory
	control *mps.Control
	latest  atomic.Pointer[reading]
}

// reading is the latest sample, or why there is none.
type reading struct {
	sample cuda.Sample
	err    error
}

// Ledger returns an empty account of the part's memory.
func (p *Part) Ledger() *Ledger {
	l := &Ledger{device: p.Text, memory: p.memory}
	l.mu.left = p.memory
	return l
}

// start runs MPS on the part as it is configured, with options without device and
// directory.
func (p *Part) start(ctx context.Context, all *config.Config, o mps.Options) (err error) {
	c := &all.MPS
	o.Device, o.Program = p.UUID, cmp.Or(c.Program, o.Program)
	switch c.Mode {
	case config.MPSOwn:
		o.Directory = MPSDirOf(c.Dir, p.UUID)
		p.control, err = mps.Start(ctx, o)
	case config.MPSExisting:
		o.Directory = c.Dir
		p.control, err = mps.Existing(ctx, o)
	}
	return err
}

func (p *Part) stop() error {
	if p.control == nil {
		return nil
	}
	return p.control.Stop()
}

// Env returns the environment of the worker of a service that runs on the part.
func (p *Part) Env(s *config.Service) []string {
	if p.control == nil {
		return mps.OffEnv(p.UUID)
	}
	return p.control.ClientEnv(mps.Limits{
		ActiveThreadPercentage: s.MPS.Percentage, PinnedMemoryBytes: s.MPS.PinnedMemory, Priority: s.MPS.Priority,
	})
}

func (p *Part) refresh() {
	s, err := p.host.Sample(p.UUID)
	p.latest.Store(&reading{s, err})
}

// Sample looks at the part once in a while until life ends: a call into the
// driver may take long when the GPU does not do well, so nobody else waits for it.
func (p *Part) Sample(life context.Context) {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		p.refresh()
		select {
		case <-tick.C:
		case <-life.Done():
			return
		}
	}
}

// HasMPS reports whether the part has MPS, and so is worth watching.
func (p *Part) HasMPS() bool { return p.control != nil }

// Watch restarts the workers of the part together as its control daemon of MPS
// fares, until life ends or Give. Lost is called when MPS is given up,
// with the reason, and with nil if it comes back.
func (p *Part) Watch(life context.Context, workers workers, lost func(error), log zerolog.Logger) {
	w := &watch{life: life, workers: workers, lost: lost, log: log.With().Str("gpu", p.UUID).Logger()}
	w.run(p.control.Events())
}

// TerminateClient ends the work of a process on the part, for a moment at most,
// if that has MPS: what becomes of the other clients of a server is not defined
// when one is killed that has work on the device.
func (p *Part) TerminateClient(life context.Context, pid int) error {
	if p.control == nil || life.Err() != nil { // at the end all clients go, and their server with them
		return nil
	}
	ctx, cancel := context.WithTimeout(life, terminateTimeout)
	defer cancel()
	return p.control.TerminateClient(ctx, pid)
}

// Status is how a part stands. Sample is the latest, and Fault is why there is none.
type Status struct {
	Device   string       `json:"device"`
	UUID     string       `json:"uuid"`
	Profile  string       `json:"mig_profile,omitempty"`
	Services []string     `json:"services"`
	MPS      *mps.State   `json:"mps,omitempty"`
	Sample   *cuda.Sample `json:"sample,omitempty"`
	Fault    string       `json:"fault,omitempty"`
}

// Status returns how the part stands, by the latest sample. It may be called by
// any goroutine.
func (p *Part) Status() Status {
	s := Status{Device: p.Text, UUID: p.UUID, Profile: p.Profile, Services: p.Services}
	if p.control != nil {
		state := p.control.State()
		s.MPS = &state
	}
	switch r := p.latest.Load(); {
	case r == nil:
	case r.err != nil:
		s.Fault = r.err.Error()
	default:
		s.Sample = &r.sample
	}
	return s
}

// uuidShown is how much of a UUID names the directory of a part: the path of a
// socket has little room. Another part with the same beginning finds the
// directory locked.
const uuidShown = len("GPU-") + 8

// MPSDirOf returns the directory of a part's own control daemon, below the one that
// is configured: "" is in what systemd gives, else in the user's own.
func MPSDirOf(configured, uuid string) string {
	if configured == "" {
		configured = filepath.Join(os.TempDir(), fmt.Sprintf("overlapd-%d", os.Geteuid()), "mps")
		for _, variable := range []string{"XDG_RUNTIME_DIR", "RUNTIME_DIRECTORY"} {
			if dir := os.Getenv(variable); filepath.IsAbs(dir) {
				configured = filepath.Join(dir, "mps")
			}
		}
	}
	return filepath.Join(configured, uuid[:min(len(uuid), uuidShown)])
}
