package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/cuda/mps"
	"github.com/overlapd/overlapd/daemon/config"
)

var (
	// errDivided is returned when a GPU should be used as a whole but is divided by MIG.
	errDivided = errors.New("the GPU is divided by MIG")

	// errNoProbe is why device = "auto" takes the CPU without a Probe.
	errNoProbe = errors.New("it is unknown whether ONNX Runtime can use a GPU")
)

const (
	// busyTries and busyPause limit the wait (5s) until the driver has noticed that the
	// last process in an instance has exited.
	busyTries = 50
	busyPause = 100 * time.Millisecond
)

// Options replaces how the hardware is accessed. The zero value accesses the host's.
type Options struct {
	NVML func() (*cuda.Host, error)
	MPS  mps.Options

	// Boot identifies the boot of the host, "" to ask the kernel. MIG instances do not
	// survive a reboot, so a record of an earlier boot is void. MPS has no Device and
	// Directory: they follow from the part.
	Boot string

	// Probe returns why ONNX Runtime cannot use the GPU with this UUID, or nil if it can.
	// It is called for device = "auto", which takes the CPU if Probe is nil.
	Probe func(ctx context.Context, uuid string) error
}

// GPU is a GPU that a daemon uses. Its methods must be called from one goroutine; those of
// its parts may be called from any.
type GPU struct {
	config config.Config

	// name is how the configuration identifies the GPU.
	name   string
	opts   Options
	host   *cuda.Host
	facts  cuda.Facts
	target cuda.Target

	// layout is nil unless the GPU is divided.
	layout *mig.Layout
	record mig.Record
	parts  []*Part

	// taken is set once Take has been called.
	taken bool
}

// Choose finds the GPUs that the configuration names and plans what Take does. The result
// is empty for the CPU. Choose changes nothing, but Give must be called for each GPU. With
// device = "auto" an unusable GPU is not an error, and the log says why it is not used.
func Choose(ctx context.Context, c config.Config, o Options, log zerolog.Logger) (all []*GPU, err error) {
	for _, name := range c.Pool().GPUs() {
		g, err := choose(ctx, c, name, o, log)
		if g != nil {
			all = append(all, g)
		}
		// Two names, such as an index and a UUID, may stand for the same GPU, which must be
		// divided only once.
		for _, other := range all {
			if err == nil && other != g && other.target.Device.UUID == g.target.Device.UUID {
				err = fmt.Errorf("gpu = %q and gpu = %q are the same GPU: %s; use one name in all devices that are its instances, and otherwise only one device", other.name, name, g.target.Device)
			}
		}
		if err != nil {
			for _, g := range all {
				err = errors.Join(err, g.Give())
			}
			return nil, err
		}
	}
	return all, nil
}

// choose returns the GPU with this name, or nil if device = "auto" takes the CPU.
func choose(ctx context.Context, c config.Config, name string, o Options, log zerolog.Logger) (*GPU, error) {
	auto := c.Pool()[0].Kind == config.DeviceAuto
	if auto && o.Probe == nil {
		log.Info().Err(errNoProbe).Msg(`device = "auto" uses the CPU`)
		return nil, nil
	}
	g, err := look(c, name, o)
	if err == nil && auto {
		if err = o.Probe(ctx, g.parts[0].UUID); err != nil {
			err = errors.Join(err, g.Give())
		}
	}
	switch {
	case err != nil && auto:
		log.Info().Str("why", err.Error()).Msg(`device = "auto" uses the CPU, because no GPU is usable`)
		return nil, nil
	case err == nil && auto:
		log.Info().Str("device", g.parts[0].Text).Msg(`device = "auto" uses the GPU`)
	}
	return g, err
}

// keep stores the record of instances. MIG calls it before and after each step.
func (g *GPU) keep(r mig.Record) error { return writeRecord(g.config.StateDir, r) }

// look finds the GPU and plans what Take does. It changes nothing. The error is one of cuda
// if there is no such GPU, one of mig if it cannot be divided as configured, or errDivided.
// Give must be called for the result.
func look(c config.Config, name string, o Options) (*GPU, error) {
	if o.NVML == nil {
		o.NVML = func() (*cuda.Host, error) { return cuda.Open(nil) }
	}
	o.Boot = cmp.Or(o.Boot, mig.Boot())
	host, err := o.NVML()
	if err != nil {
		return nil, err
	}
	g := &GPU{config: c, name: name, opts: o, host: host}
	if g.record, err = ReadRecord(c.StateDir); err == nil {
		err = g.find()
	}
	switch {
	case err != nil:
	case len(g.wants()) > 0:
		err = g.plan()
	default:
		err = g.whole()
	}
	if err != nil {
		return nil, errors.Join(err, host.Close())
	}
	return g, nil
}

// find looks the GPU up in the current state of the host.
func (g *GPU) find() (err error) {
	if g.facts, err = g.host.Facts(); err != nil {
		return err
	}
	g.target, err = g.facts.Find(cmp.Or(g.name, "0"))
	return err
}

// wants returns the MIG instances that the configuration declares.
func (g *GPU) wants() []mig.Want { return g.config.Pool().Instances(g.name, g.config.Services) }

// plan plans the division of the GPU and makes a part of each slot.
func (g *GPU) plan() error {
	if g.target.Instance != nil {
		return fmt.Errorf("%w: %s is an instance; name the GPU to divide", errDivided, g.target.UUID())
	}
	layout, err := mig.Plan(g.target.Device, g.wants(), mig.Options{
		Owner: g.config.MIG.Owner, Record: g.record, Boot: g.opts.Boot,
	})
	if err != nil {
		return err
	}
	g.layout = &layout
	for _, s := range layout.Slots {
		profile, _ := g.target.Device.MIG.Profile(s.Profile) // Plan has checked it
		g.parts = append(g.parts, g.part(s.UUID, s.Profile, s.Services, int64(profile.Memory)))
	}
	return nil
}

// whole makes one part of a GPU, or of an existing instance, that is used as it is.
// Instances that an earlier daemon left on the GPU do not matter: Take removes them.
func (g *GPU) whole() error {
	profile := ""
	if g.target.Instance != nil {
		profile = g.target.Instance.Profile
	} else if g.target.Device.MIG.Enabled && !g.leftover() {
		return g.divided()
	}
	i := slices.IndexFunc(g.config.Pool(), g.has)
	g.parts = []*Part{g.part(g.target.UUID(), profile, g.config.Pool().ServicesOn(i, g.config.Services), unknownMemory)}
	return nil
}

// part returns a part of the GPU. memory is its expected free memory until it exists.
func (g *GPU) part(uuid, profile string, services []string, memory int64) *Part {
	d := &g.target.Device
	text := fmt.Sprintf("%s, compute capability %s", d.Name, d.Capability)
	if profile != "" {
		text += ", MIG " + profile
	}
	if g.config.MPS.Mode != config.MPSOff {
		text += ", MPS"
	}
	return &Part{host: g.host, Text: text, UUID: uuid, Profile: profile, Services: services, memory: g.memoryOf(uuid, memory)}
}

// memoryOf returns the free memory of a GPU or instance, or known if the driver does not
// report it.
func (g *GPU) memoryOf(uuid string, known int64) int64 {
	if t, err := g.facts.Find(uuid); err == nil && t.Memory().Known {
		return int64(t.Memory().Value.Free)
	}
	return known
}

// leftover reports whether an earlier daemon left instances on this GPU that the
// configuration no longer declares.
func (g *GPU) leftover() bool {
	return len(g.wants()) == 0 && !g.record.Empty() && g.record.GPU == g.target.Device.UUID
}

// divided returns the error for a divided GPU, with the choices that the user has.
func (g *GPU) divided() error {
	var have []string
	for _, i := range g.target.Device.Instances {
		if i.UUID != "" {
			have = append(have, i.UUID)
		}
	}
	said := "it has no usable instance"
	if len(have) > 0 {
		said = "name one of its instances in gpu: " + strings.Join(have, ", ")
	}
	return fmt.Errorf("%w: %s; %s; or declare them as [[device]] with mig, or turn MIG off with nvidia-smi -i %d -mig 0",
		errDivided, g.target.Device, said, g.target.Device.Index)
}

// has reports whether a device of the configuration is the GPU or an instance of it.
func (g *GPU) has(d config.Device) bool {
	return d.GPU == g.name && (d.Kind == config.DeviceCUDA || d.Kind == config.DeviceAuto)
}

// Part returns the part that the named device of the configuration is, or nil if the device
// is not on this GPU. Before Take, an instance that must be created has no UUID.
func (g *GPU) Part(device string) *Part {
	at := 0
	// Parts are in the order of the devices, see wants.
	for _, d := range g.config.Pool() {
		switch {
		case !g.has(d):
		case d.Name == device:
			return g.parts[at]
		default:
			at++
		}
	}
	return nil
}

// String describes the GPU and how Take divides it.
func (g *GPU) String() string {
	if g.layout != nil {
		return g.layout.String()
	}
	p, how := g.parts[0], "not divided"
	if g.target.Compute != nil {
		how = p.Profile + "  " + p.UUID
	}
	return fmt.Sprintf("%s\n%s  %s\n", g.target.Device, how, strings.Join(p.Services, ", "))
}

// Take divides the GPU as planned and starts MPS on each part. Give undoes it, also after
// an error.
func (g *GPU) Take(ctx context.Context) error {
	g.taken = true
	if err := g.divide(); err != nil {
		return err
	}
	for _, p := range g.parts {
		if err := p.start(ctx, &g.config, g.opts.MPS); err != nil {
			return fmt.Errorf("MPS on %s: %w", p.Text, err)
		}
	}
	return nil
}

// divide creates the planned instances and learns their UUIDs and memory.
func (g *GPU) divide() (err error) {
	if g.layout == nil {
		return g.clear()
	}
	layout, record, err := mig.Apply(g.host, *g.layout, g.keep)
	g.layout, g.record = &layout, record
	if err != nil {
		return err
	}
	if err := g.find(); err != nil {
		return err
	}
	for i := range layout.Slots {
		g.parts[i].UUID = layout.Slots[i].UUID
		g.parts[i].memory = g.memoryOf(layout.Slots[i].UUID, g.parts[i].memory)
	}
	return nil
}

// clear destroys instances of an earlier daemon on a GPU that is no longer divided.
func (g *GPU) clear() error {
	if !g.leftover() {
		return nil
	}
	if err := g.release(); err != nil {
		return fmt.Errorf("releasing the MIG instances of an earlier daemon failed: %w", err)
	}
	if err := g.find(); err != nil {
		return err
	}
	return g.whole()
}

// release destroys the daemon's instances. It retries for a moment while processes in them
// exit.
func (g *GPU) release() (err error) {
	for range busyTries {
		if g.record, err = mig.Release(g.host, g.record, g.opts.Boot, g.keep); !errors.Is(err, mig.ErrBusy) {
			return err
		}
		time.Sleep(busyPause)
	}
	return err
}

// Give stops MPS, destroys the instances that Take or an earlier daemon created, and closes
// NVML. All workers must have exited.
func (g *GPU) Give() error {
	var errs []error
	for _, p := range slices.Backward(g.parts) {
		errs = append(errs, p.stop())
	}
	if g.taken && g.layout != nil && g.config.MIG.Owner && !g.record.Empty() {
		errs = append(errs, g.release())
	}
	return errors.Join(append(errs, g.host.Close())...)
}
