package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
)

func TestWholeGPU(t *testing.T) {
	r := newRig(t, fakegpu.New(fakegpu.A100, fakegpu.H100))
	r.config.GPU = "1"
	state := r.server.State()
	g := r.take()
	p := g.parts[0]
	if len(g.parts) != 1 || p.Text != "NVIDIA H100 80GB HBM3, compute capability 9.0, MPS" || p.UUID != r.server.Devices[1].UUID || p.memory != 81559<<20 {
		t.Errorf("%+v", p)
	}
	s := new(config.Service)
	s.MPS.Percentage = 40
	text := strings.Join(p.Env(s), "\n")
	for _, want := range []string{"CUDA_VISIBLE_DEVICES=" + p.UUID, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40", "CUDA_MPS_PIPE_DIRECTORY=" + r.config.MPS.Dir} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the environment", want)
		}
	}
	if s := p.Status(); s.Sample != nil || s.Fault != "" || s.MPS.Phase != "running" {
		t.Errorf("before a look: %+v", s)
	}
	p.refresh()
	if s := p.Status(); s.Sample == nil || !s.Sample.Memory.Known {
		t.Errorf("%+v", s)
	}
	if _, err := json.Marshal(p.Status()); err != nil {
		t.Error(err)
	}
	if err := g.Give(); err != nil {
		t.Error(err)
	}
	r.checkClean(state)
	p.refresh()
	if s := p.Status(); s.Sample != nil || s.Fault == "" || s.MPS.Phase != "stopped" {
		t.Errorf("given back: %+v", s)
	}
}

func TestOff(t *testing.T) {
	r := newRig(t, fakegpu.New())
	r.config.MPS.Mode = config.MPSOff
	g := r.take()
	p := g.parts[0]
	if text := strings.Join(p.Env(new(config.Service)), "\n"); !strings.Contains(text, "CUDA_MPS_PIPE_DIRECTORY=/dev/null") || p.HasMPS() || p.Status().MPS != nil || p.Text != "NVIDIA H100 80GB HBM3, compute capability 9.0" {
		t.Error(p.Text, text)
	}
	if err := g.Give(); err != nil {
		t.Error(err)
	}
}

func TestDivided(t *testing.T) {
	r := newRig(t, fakegpu.New()).divided()
	state := r.server.State()
	g := r.look()
	if text := g.String(); !strings.Contains(text, "enable MIG mode") || !strings.Contains(text, "A  3g.40gb") || r.server.State() != state {
		t.Errorf("%s", text)
	}
	if g.parts[1].UUID != "" {
		t.Errorf("%+v", g.parts[1])
	}
	if err := g.Take(context.Background()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(r.config.StateDir, recordName))
	if record, perr := mig.ParseRecord(data); err != nil || perr != nil || len(record.Entries) != 2 {
		t.Errorf("%s: %v, %v", data, err, perr)
	}
	for i, want := range []string{", MIG 3g.40gb, MPS", ", MIG 2g.20gb, MPS"} {
		p := g.parts[i]
		if !strings.HasPrefix(p.UUID, "MIG-") || !strings.HasSuffix(p.Text, want) || p.memory <= 0 || p.memory > 41<<30 {
			t.Errorf("%+v", p)
		}
		if m := p.Status().MPS; m.Phase != "running" || m.Fault != "" {
			t.Errorf("%+v", m)
		}
	}
	if a, b := g.parts[0].Status().MPS.PID, g.parts[1].Status().MPS.PID; a == b || a == 0 {
		t.Errorf("control daemons %d and %d", a, b)
	}
	if err := g.Give(); err != nil {
		t.Error(err)
	}
	r.checkClean(state)
}

// A daemon that died leaves its record, by which the next one finds what is to
// be taken over or destroyed.
func TestAfterACrash(t *testing.T) {
	r := newRig(t, fakegpu.New()).divided()
	state := r.server.State()
	crash := func() {
		g := r.take()
		for _, p := range g.parts {
			if err := p.stop(); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.host.Close(); err != nil {
			t.Fatal(err)
		}
	}
	crash()
	if r.server.State() == state {
		t.Fatal("nothing is left")
	}
	if err := r.take().Give(); err != nil { // the same configuration again
		t.Error(err)
	}
	r.checkClean(state)
	crash()
	r.config.Devices, r.config.MIG.Owner, r.config.Services = nil, false, r.config.Services[:1]
	g := r.take() // one that wants the GPU whole
	if err := g.Give(); err != nil {
		t.Error(err)
	}
	r.checkClean(state)
}

// Whatever fails while a GPU is taken, it is given back as it was.
func TestTakeFails(t *testing.T) {
	for name, spoil := range map[string]func(r *rig){
		"an instance":         func(r *rig) { r.server.Fail("nvmlDeviceCreateGpuInstanceWithPlacement", 1, -1, nvml.ERROR_UNKNOWN) },
		"a compute instance":  func(r *rig) { r.server.Fail("nvmlGpuInstanceCreateComputeInstance", 1, -1, nvml.ERROR_UNKNOWN) },
		"no control program":  func(r *rig) { r.opts.MPS.Program = "/nonexistent" },
		"the state directory": func(r *rig) { r.config.StateDir = filepath.Join(r.config.StateDir, "gone") },
	} {
		r := newRig(t, fakegpu.New()).divided()
		state := r.server.State()
		spoil(r)
		g := r.look()
		if err := g.Take(context.Background()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if err := g.Give(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r.checkClean(state)
	}
}

func TestLookRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(r *rig)
		want    error
	}{
		"no driver":        {func(r *rig) { r.server.Fail("nvmlInit", 0, -1, nvml.ERROR_LIBRARY_NOT_FOUND) }, cuda.ErrNoDriver},
		"no such GPU":      {func(r *rig) { r.config.GPU = "7" }, cuda.ErrNotFound},
		"is divided":       {func(r *rig) { r.server.SetMIG(0, true) }, errDivided},
		"does not fit":     {func(r *rig) { r.divided().config.Devices[1].MIG = "7g.80gb" }, mig.ErrNoFit},
		"may not create":   {func(r *rig) { r.divided().config.MIG.Owner = false }, mig.ErrMissing},
		"a damaged record": {func(r *rig) { os.WriteFile(filepath.Join(r.config.StateDir, recordName), []byte("{"), 0o600) }, errRecordFile},
	} {
		r := newRig(t, fakegpu.New())
		tt.prepare(r)
		if _, err := look(r.config, r.config.Pool().GPUs()[0], r.opts); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if !r.server.Closed() {
			t.Errorf("%s: NVML is open", name)
		}
	}
}

// An instance that somebody else made is used as it is, and stays.
func TestNamedInstance(t *testing.T) {
	r := newRig(t, fakegpu.New())
	r.server.SetMIG(0, true)
	if err := r.server.Place(0, 9, 4, 3); err != nil {
		t.Fatal(err)
	}
	_, err := look(r.config, r.config.Pool().GPUs()[0], r.opts)
	if !errors.Is(err, errDivided) || !strings.Contains(err.Error(), "MIG-") {
		t.Fatal(err)
	}
	state := r.server.State()
	r.config.GPU = err.Error()[strings.Index(err.Error(), "MIG-"):][:12]
	g := r.take()
	if p := g.parts[0]; p.Profile != "3g.40gb" || !strings.HasPrefix(p.UUID, r.config.GPU) || p.memory <= 0 || !strings.Contains(g.String(), p.UUID) {
		t.Errorf("%+v\n%s", p, g)
	}
	if err := g.Give(); err != nil {
		t.Error(err)
	}
	r.checkClean(state)
}

func TestLedger(t *testing.T) {
	l := (&Part{Text: "a GPU", memory: 1000 << 20}).Ledger()
	for i, n := range []struct {
		bytes int64
		fits  bool
	}{{600 << 20, true}, {500 << 20, false}, {400 << 20, true}, {1, false}} {
		_, err := l.Admit(string(rune('a'+i)), n.bytes, "its sums")
		if (err == nil) != n.fits || err != nil && !errors.Is(err, ErrNoRoom) {
			t.Errorf("service %d: %v", i, err)
		}
		if i == 1 {
			for _, want := range []string{"b: it needs 500 MiB (its sums)", "1000 MiB of a GPU", "a has 600 MiB", "400 MiB are left"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %q", want, err)
				}
			}
		}
	}
	if text := l.String(); !strings.Contains(text, "a  600 MiB") || !strings.Contains(text, "c  400 MiB") || !strings.Contains(text, "  0 MiB are left") {
		t.Error(text)
	}
}

// A driver that does not tell of memory keeps no service away.
func TestUnknownMemory(t *testing.T) {
	r := newRig(t, fakegpu.New())
	r.server.Fail("nvmlDeviceGetMemoryInfo", 0, -1, nvml.ERROR_NOT_SUPPORTED)
	g := r.look()
	l := g.parts[0].Ledger()
	if _, err := l.Admit("a", 1<<40, ""); err != nil {
		t.Error(err)
	}
	if text := l.String(); !strings.Contains(text, "unknown free") || strings.Contains(text, "left") {
		t.Error(text)
	}
	if err := g.Give(); err != nil {
		t.Error(err)
	}
}

func TestRuntimeDir(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", "/run/overlapd")
	if got := MPSDirOf("", "GPU-0123456789abcdef"); got != "/run/overlapd/mps/GPU-01234567" {
		t.Error(got)
	}
	if got := MPSDirOf("/srv/mps", "MIG-01"); got != "/srv/mps/MIG-01" {
		t.Error(got)
	}
	t.Setenv("RUNTIME_DIRECTORY", "")
	t.Setenv("XDG_RUNTIME_DIR", "")
	if got := MPSDirOf("", "GPU-1"); !strings.HasPrefix(got, os.TempDir()) {
		t.Error(got)
	}
}
