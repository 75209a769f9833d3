package gpu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mps"
	"github.com/overlapd/overlapd/daemon/config"
)

// Part is what one group of services runs on: a GPU or one MIG instance. Two parts
// with the same Text, which is name, compute capability and MIG profile, take the
// same time for a model. An instance that is not there yet has no UUID, and a GPU
// no profile.
type Part struct {
	Text     string
	UUID     string
	Profile  string
	Services []string

	gpu     *GPU
	memory  int64 // free bytes, or unknownMemory
	control *mps.Control
	latest  atomic.Pointer[reading]
}

// reading is the latest sample, or why there is none.
type reading struct {
	sample cuda.Sample
	err    error
}

// text returns what the times of models depend on.
func text(d *cuda.Device, profile string) string {
	t := fmt.Sprintf("%s, compute capability %s", d.Name, d.Capability)
	if profile != "" {
		t += ", MIG " + profile
	}
	return t
}

// whole returns the part of a GPU, or an instance, that is used as it is.
func (g *GPU) whole() *Part {
	d := &g.target.Device
	p := &Part{gpu: g, UUID: g.target.UUID(), Services: g.config.Names(), memory: unknownMemory}
	if d.Memory.Known {
		p.memory = int64(d.Memory.Value.Free)
	}
	if g.target.Instance != nil {
		p.Profile = g.target.Instance.Profile
		p.memory = g.memoryOf(p.UUID, unknownMemory)
	}
	p.Text = text(d, p.Profile)
	return p
}

// slot returns the part of the i-th MIG instance of the layout, which is there or
// planned.
func (g *GPU) slot(i int) *Part {
	s, d := g.layout.Slots[i], &g.target.Device
	p := &Part{gpu: g, UUID: s.UUID, Profile: s.Profile, Services: s.Services, Text: text(d, s.Profile), memory: unknownMemory}
	if profile, ok := d.MIG.Profile(s.Profile); ok {
		p.memory = int64(profile.Memory)
	}
	if s.UUID != "" {
		p.memory = g.memoryOf(s.UUID, p.memory)
	}
	return p
}

// memoryOf returns the free memory of an instance, or what was known.
func (g *GPU) memoryOf(uuid string, known int64) int64 {
	for i := range g.target.Device.Instances {
		for _, c := range g.target.Device.Instances[i].Compute {
			if c.UUID == uuid && c.Memory.Known {
				return int64(c.Memory.Value.Free)
			}
		}
	}
	return known
}

// start runs MPS on the part.
func (p *Part) start(ctx context.Context) (err error) {
	o := p.gpu.opts.MPS
	o.Device = p.UUID
	c := &p.gpu.config.MPS
	if c.Program != "" {
		o.Program = c.Program
	}
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
func (p *Part) Env(s *config.Service) ([]string, error) {
	priority, err := mps.ParsePriority(s.MPS.Priority)
	if err != nil || p.control == nil {
		return mps.OffEnv(p.UUID), err
	}
	return p.control.ClientEnv(mps.Limits{
		ActiveThreadPercentage: s.MPS.Percentage, PinnedMemoryBytes: s.MPS.PinnedMemory, Priority: priority,
	})
}

// look takes a sample of the part, for Status.
func (p *Part) look() {
	s, err := p.gpu.host.Sample(p.UUID)
	p.latest.Store(&reading{s, err})
}

// Status is how a part stands. Sample is the latest, and Fault is why there is none.
type Status struct {
	Device   string       `json:"device"`
	UUID     string       `json:"uuid"`
	Profile  string       `json:"mig_profile,omitempty"`
	Services []string     `json:"services"`
	MPS      *mpsStatus   `json:"mps,omitempty"`
	Sample   *cuda.Sample `json:"sample,omitempty"`
	Fault    string       `json:"fault,omitempty"`
}

// mpsStatus is how a control daemon stands.
type mpsStatus struct {
	Phase   string `json:"phase"`
	PID     int    `json:"pid,omitempty"`
	Starts  int    `json:"starts"`
	Servers []int  `json:"server_pids"`
	Fault   string `json:"fault,omitempty"`
}

// Status returns how the part stands, by the latest sample. It may be called by
// any goroutine.
func (p *Part) Status() Status {
	s := Status{Device: p.Text, UUID: p.UUID, Profile: p.Profile, Services: p.Services}
	if p.control != nil {
		s.MPS = newMPSStatus(p.control.State())
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

func newMPSStatus(state mps.State) *mpsStatus {
	s := &mpsStatus{Phase: state.Phase.String(), PID: state.PID, Starts: state.Starts, Servers: []int{}}
	for _, server := range state.Servers {
		s.Servers = append(s.Servers, server.PID)
	}
	if state.Err != nil {
		s.Fault = state.Err.Error()
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
		configured = filepath.Join(runtimeDir(), "mps")
	}
	return filepath.Join(configured, uuid[:min(len(uuid), uuidShown)])
}

// runtimeDir is what systemd gives, else the user's own.
func runtimeDir() string {
	for _, variable := range []string{"RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"} {
		if dir := os.Getenv(variable); filepath.IsAbs(dir) {
			return dir
		}
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("overlapd-%d", os.Geteuid()))
}
