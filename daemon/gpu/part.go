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

// Part is what a group of services runs on: a GPU or one MIG instance. Text is its name,
// compute capability, MIG profile and whether it uses MPS. Parts with the same Text run the
// same models in the same time, alone and together, so measurements are shared between
// them. UUID is empty for an instance that does not exist yet, and Profile for a whole GPU.
type Part struct {
	Text     string
	UUID     string
	Profile  string
	Services []string

	host *cuda.Host

	// memory is the free memory in bytes, or unknownMemory.
	memory  int64
	control *mps.Control

	// latest is nil until Sample has run.
	latest atomic.Pointer[reading]
}

// reading is a sample, or why there is none.
type reading struct {
	sample cuda.Sample
	err    error
}

// Ledger returns an empty ledger of the part's memory.
func (p *Part) Ledger() *Ledger {
	l := &Ledger{device: p.Text, memory: p.memory}
	l.mu.left = p.memory
	return l
}

// start starts MPS on the part as configured, or connects to a running one. o has no Device
// and Directory.
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

// stop stops MPS if start has started it.
func (p *Part) stop() error {
	if p.control == nil {
		return nil
	}
	return p.control.Stop()
}

// Env returns the environment variables that make the worker of a service use the part.
func (p *Part) Env(s *config.Service) []string {
	if p.control == nil {
		return mps.OffEnv(p.UUID)
	}
	return p.control.ClientEnv(mps.Limits{
		ActiveThreadPercentage: s.MPS.Percentage, PinnedMemoryBytes: s.MPS.PinnedMemory, Priority: s.MPS.Priority,
	})
}

// refresh takes a sample.
func (p *Part) refresh() {
	s, err := p.host.Sample(p.UUID)
	p.latest.Store(&reading{s, err})
}

// Sample takes a sample every sampleInterval until life is done. It runs in a goroutine of
// its own because a call into the driver may block for long when the GPU is in trouble.
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

// HasMPS reports whether the part uses MPS and must be watched.
func (p *Part) HasMPS() bool { return p.control != nil }

// Watch restarts the workers of the part together when its MPS server or control daemon
// fails. It returns when life is done or after Give. lost is called with the reason when
// MPS has failed permanently, and with nil if it comes back.
func (p *Part) Watch(life context.Context, workers workers, lost func(error), log zerolog.Logger) {
	w := &watch{life: life, workers: workers, lost: lost, log: log.With().Str("gpu", p.UUID).Logger()}
	w.run(p.control.Events())
}

// TerminateClient asks MPS to end the work of a process on the part, for terminateTimeout
// at most. It must be called before a worker is killed: if a client with work on the device
// is killed, the state of the other clients of its server is undefined. It does nothing
// without MPS.
func (p *Part) TerminateClient(life context.Context, pid int) error {
	if p.control == nil || life.Err() != nil { // at the end all clients exit with their server
		return nil
	}
	ctx, cancel := context.WithTimeout(life, terminateTimeout)
	defer cancel()
	return p.control.TerminateClient(ctx, pid)
}

// Status describes a part for the daemon's status. Sample is the latest one, or Fault says
// why there is none.
type Status struct {
	Device   string       `json:"device"`
	UUID     string       `json:"uuid"`
	Profile  string       `json:"mig_profile,omitempty"`
	Services []string     `json:"services"`
	MPS      *mps.State   `json:"mps,omitempty"`
	Sample   *cuda.Sample `json:"sample,omitempty"`
	Fault    string       `json:"fault,omitempty"`
}

// Status returns the status of the part by the latest sample. It may be called from any
// goroutine.
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

// uuidShown is how much of a UUID is used in the directory name of a part. The path of a
// Unix socket is limited to 107 bytes. Another part with the same prefix would find the
// directory locked.
const uuidShown = len("GPU-") + 8

// MPSDirOf returns the directory of a part's own control daemon, below the configured one.
// "" stands for systemd's runtime directory, then that of the user, then the temporary
// directory.
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
