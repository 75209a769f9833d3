package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/hostcheck"
	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/probe"
	"github.com/overlapd/overlapd/segments/wire"
)

func checkCommand() *cobra.Command {
	var asJSON, embedded bool
	var on, key string
	cmd := &cobra.Command{
		Use:   "check [CONFIG]",
		Short: "Check a configuration and what this host can run",
		Long: `Check reports all faults of a configuration at once. Run it before serve, and before
reload. If there is no fault, it prints the effective configuration, with every
default filled in, to standard output. To standard error it prints what this host
has, and warns of addresses, tokens and certificates that are unsafe.
Without CONFIG it checks overlapd.toml in this folder, or else the built-in
configuration.

It also checks:
  models      each file is loaded on the CPU in its own process, as a worker
              would load it; this takes as long as at a start
  selection   policy files match the device, the models and the threads
  sockets     those passed by a service manager (LISTEN_FDS) match the addresses
  GPU         driver, library versions, permissions, MPS and MIG, with a remedy for
              each fault; a small model runs on the GPU in its own process

With --explain it only explains a key, or all keys of a table such as worker: meaning,
type, default, the value in effect, and whether a reload can change it.`,
		Example: `  overlapd check overlapd.toml
  overlapd check --explain max_batch           explain a key; --json for programs
  overlapd check --explain worker              explain all keys of a table
  overlapd check --embedded > overlapd.toml    write a file to start from
  overlapd check overlapd.toml --on 0          check it for GPU 0`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && embedded {
				return errors.New("a file and --embedded cannot be checked together: give one of them")
			}
			o := serveOptions{path: strings.Join(args, ""), on: on}
			if len(args) == 0 && !embedded {
				o.path = local(cmd)
			}
			if o.embedded = o.path == ""; o.embedded && !embedded {
				fmt.Fprintf(cmd.ErrOrStderr(), "overlapd: checking the built-in configuration: there is no %s in this folder\n", localConfig)
			}
			c, err := o.config()
			if cmd.Flags().Changed("explain") {
				return explainKeys(cmd.OutOrStdout(), key, asJSON, c, err)
			}
			if err != nil {
				return err
			}
			if err := daemon.CheckModels(&c); err != nil {
				return err
			}
			if err := daemon.CheckCores(&c); err != nil {
				return err
			}
			if err := daemon.CheckSelection(c, offlineOptions(&c)); err != nil {
				return err
			}
			exposed, err := daemon.CheckAccess(&c)
			if err != nil {
				return err
			}
			given, err := access.Inherit(activation.Files(true), &c)
			if err != nil {
				return err
			}
			found, err := lookAtHost(cmd.Context(), c)
			found.Exposed, found.Notes = exposed, slices.Concat(socketNotes(given.Each), c.Devices.Idle(c.Services))
			for i, d := range c.Devices {
				found.Pool = append(found.Pool, poolDevice{d.Name, d.Kind, c.Devices.ServicesOn(i, c.Services)})
			}
			if bytes, err := hostMemory(&c, modelFile); err == nil && !found.Emulated {
				found.Notes = append(found.Notes, fmt.Sprintf("peak host memory of the daemon and its workers: %d MiB", bytes>>20))
			}
			if found.ORTPath != "" {
				notes, faults := tryModels(cmd.Context(), &c, found.ORTPath)
				found.Notes, err = append(found.Notes, notes...), errors.Join(err, faults)
			}
			if asJSON {
				return errors.Join(report.WriteJSON(cmd.OutOrStdout(), found), err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s", c.TOML())
			found.writeText(cmd.ErrOrStderr())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what the host has, or what --explain says of each key, as JSON")
	cmd.Flags().BoolVar(&embedded, "embedded", false, "check the built-in configuration")
	cmd.Flags().StringVar(&on, "on", "", "device to check for, as in serve --on: cpu, or index or UUID of a GPU")
	cmd.Flags().StringVar(&key, "explain", "", "only explain this key, or all keys of this table")
	return cmd
}

// reloads says what it takes to change a key, by what [config.Explain] says of it.
var reloads = map[string]string{
	"restart":  "needs a restart of the daemon",
	"now":      "takes effect with a reload",
	"worker":   "takes effect with a reload, which loads the model in a new worker",
	"replicas": "takes effect with a reload, which starts and ends workers",
	"name":     "a reload takes another name for another service",
}

// explainKeys prints what a key, or each key of a table, means. A faulty configuration has no
// values in effect; the keys are explained all the same, since that helps to correct it.
func explainKeys(w io.Writer, name string, asJSON bool, c config.Config, faulty error) error {
	in := &c
	if faulty != nil {
		in = nil
	}
	keys, err := config.Explain(name, in)
	if err != nil {
		return err
	}
	if asJSON {
		return errors.Join(report.WriteJSON(w, map[string]any{"keys": keys}), faulty)
	}
	for i, k := range keys {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s\n  %s\n  type       %s\n  default    %s\n", k.Key, k.Meaning, k.Type, cmp.Or(k.Missing, string(k.Default)))
		for _, v := range k.InEffect {
			fmt.Fprintf(w, "  in effect  %s\n", strings.TrimSpace(string(v.Value)+"  "+v.Of))
		}
		fmt.Fprintf(w, "  a change   %s\n", reloads[k.Reload])
	}
	return faulty
}

// socketNotes says which sockets a daemon would not open itself, and what that means for a restart.
func socketNotes(each func(func(name string, ln net.Listener))) (list []string) {
	each(func(name string, ln net.Listener) {
		list = append(list, fmt.Sprintf("socket %s (%s) is inherited: connections wait while the daemon restarts", name, ln.Addr()))
	})
	if len(list) == 0 {
		list = []string{"no socket is inherited: connections are refused while the daemon restarts, unless systemd holds its sockets (overlapd@.socket, docs/install.md)"}
	}
	return list
}

// modelFile returns the file of a model that need not be built first.
func modelFile(model string) (string, error) {
	if !config.IsPath(model) {
		return "", errors.New("it is built when the daemon starts")
	}
	return model, nil
}

// tryModels loads the model file of each service in a process of its own, one after the
// other, and returns what was written meanwhile, and the faults. The daemon's process
// never links ONNX Runtime, and no model may end this one.
func tryModels(ctx context.Context, c *config.Config, library string) (notes []string, err error) {
	tried := map[string]bool{}
	for _, s := range c.Expanded().Services {
		if !config.IsPath(s.Model) || tried[s.Model] {
			continue
		}
		tried[s.Model] = true
		lines, fault := loadModel(ctx, s.Model, library, c.Worker.LoadTimeout)
		for _, line := range lines {
			notes = append(notes, fmt.Sprintf("service %s: %s", s.Name, line))
		}
		if exit, ok := errors.AsType[*exec.ExitError](fault); ok && exit.ExitCode() == exitConfig {
			fault = config.ModelFault(s.Name, errors.New(string(exit.Stderr)))
		} else if fault != nil {
			fault = fmt.Errorf("service %s: its model could not be loaded: %w", s.Name, fault)
		}
		err = errors.Join(err, fault)
	}
	return notes, err
}

// loadModel has models inspect load a model, with a cache that is removed again. It returns
// what was written besides the error, which is an [exec.ExitError] with its reason where
// the process ended by itself.
func loadModel(ctx context.Context, model, library string, limit time.Duration) (lines []string, err error) {
	cache, err := os.MkdirTemp("", "overlapd-check-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(cache)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("loading took longer than worker.load_timeout (%v)", limit))
	defer cancel()
	var out bytes.Buffer
	command := cli.Self("models", "inspect", "--json", "--", model)
	child := exec.CommandContext(ctx, command[0], command[1:]...)
	child.Stderr, child.Env = &out, append(os.Environ(), "CACHE_DIRECTORY=", "XDG_CACHE_HOME="+cache, "OVERLAPD_ORT="+library)
	err = child.Run()
	text, why, _ := strings.Cut("\n"+strings.TrimSpace(out.String()), "\noverlapd: ")
	for line := range strings.Lines(strings.TrimSpace(text)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case ended && exit.ExitCode() == exitConfig:
		exit.Stderr = []byte(why)
	case ended:
		err = fmt.Errorf("%w: %s", err, cmp.Or(why, strings.Join(lines, "; ")))
	}
	return lines, err
}

// host is the JSON of check. ONNX Runtime and the GPU are left out where the device
// is emulated, the GPU also where the configuration uses none. Exposed lists what is
// unsafe about addresses, tokens and certificates, Notes what a worker writes about a
// model that it loads.
type host struct {
	Device      string   `json:"device"`
	Emulated    bool     `json:"emulated,omitempty"`
	Cores       int      `json:"cores"`
	MemoryBytes int64    `json:"memory_bytes"`
	ORTPath     string   `json:"ort_path"`
	ORTVersion  string   `json:"ort_version"`
	ORTPinned   bool     `json:"ort_pinned"`
	Fault       string   `json:"fault,omitempty"`
	Exposed     []string `json:"exposed,omitempty"`
	Notes       []string `json:"notes,omitempty"`

	// Pool are the devices of a configuration with several, with the services on each.
	Pool []poolDevice `json:"pool,omitempty"`

	GPU *hostcheck.Report `json:"gpu,omitempty"`
}

type poolDevice struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"`
	Services []string `json:"services"`
}

func lookAtHost(ctx context.Context, c config.Config) (host, error) {
	h := host{Device: cli.CPU(), Cores: runtime.NumCPU()}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		h.MemoryBytes = int64(info.Totalram) * int64(info.Unit)
	}
	if c.Emulated() {
		device, err := daemon.EmulatedDevice(c)
		if err != nil {
			h.Fault = err.Error()
		}
		h.Device, h.Emulated = device, true
		return h, err
	}
	lib, err := ort.Load()
	if err == nil {
		h.ORTPath, h.ORTVersion, h.ORTPinned = lib.Path(), lib.Version(), lib.Pinned()
	}
	if c.MayUseGPU() {
		found := lookAtGPUs(ctx, c, lib)
		h.GPU = &found
		if c.Pool()[0].Kind != config.DeviceAuto { // which takes the CPU where the GPU cannot be used
			err = errors.Join(err, found.Err())
		}
	}
	if err != nil {
		h.Fault = err.Error()
	}
	return h, err
}

func (h host) writeText(w io.Writer) {
	for _, e := range h.Exposed {
		fmt.Fprintf(w, "# unsafe: %s\n", e)
	}
	for _, n := range h.Notes {
		fmt.Fprintf(w, "# %s\n", n)
	}
	for _, d := range h.Pool {
		fmt.Fprintf(w, "# device %s (%s): %s\n", d.Name, d.Kind, strings.Join(d.Services, ", "))
	}
	if h.Emulated {
		if h.Fault == "" {
			fmt.Fprintf(w, "# device: %s, nothing is computed\n", h.Device)
		}
		return
	}
	fmt.Fprintf(w, "# device: %s, %.1f GiB of memory\n", h.Device, float64(h.MemoryBytes)/(1<<30))
	if h.ORTPath != "" {
		note := ""
		if !h.ORTPinned {
			note = ", not the version that overlapd is tested with"
		}
		fmt.Fprintf(w, "# ONNX Runtime %s%s: %s\n", h.ORTVersion, note, h.ORTPath)
	}
	if h.GPU != nil {
		h.GPU.WriteText(w)
	}
}

const (
	tryModel     = "tiny_cnn"  // has a convolution and a matrix product, so that cuDNN and cuBLAS are needed
	tryTimeout   = time.Minute // of a first start of CUDA, which may load a gigabyte
	tryTolerance = 1e-3        // between its outputs and the CPU's, relative to the largest
)

// lookAtGPUs looks for what keeps the first device of a configuration from being the GPU that it may be.
func lookAtGPUs(ctx context.Context, c config.Config, lib *ort.Library) hostcheck.Report {
	name := c.Pool().GPUs()[0]
	o := hostcheck.Options{
		GPU: name, Wanted: c.Pool()[0].Kind != config.DeviceAuto, Services: len(c.Expanded().Services),
		MPS:         hostcheck.MPS{Join: c.MPS.Mode == config.MPSExisting, Directory: c.MPS.Dir, Program: c.MPS.Program},
		MIG:         hostcheck.MIG{Instances: c.Pool().Instances(name, c.Services), Owner: c.MIG.Owner, Record: func() (mig.Record, error) { return gpu.ReadRecord(c.StateDir) }},
		Runtime:     hostcheck.Runtime{Pinned: ort.PinnedCUDAVersion},
		LibraryPath: filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), User: os.Geteuid(),
		Open: func() (*cuda.Host, error) { return cuda.Open(nil) },
		Access: func(path string) error {
			return unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK, unix.AT_EACCESS)
		},
		Needs: hostcheck.Needs, Try: tryGPU,
	}
	if c.MPS.Mode == config.MPSOwn {
		o.MPS.Own = func(uuid string) string { return gpu.MPSDirOf(c.MPS.Dir, uuid) }
	}
	if lib != nil {
		o.Runtime.Path = lib.Path()
		o.Runtime.Providers, _ = lib.Providers() // none is as good as no CUDA
	}
	return hostcheck.Check(ctx, o)
}

// tryGPU compares a small model with the CPU, in a process that a broken provider may end.
func tryGPU(ctx context.Context, uuid string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, tryTimeout, fmt.Errorf("it took longer than %v: the GPU or the driver hangs; look for Xid messages (dmesg)", tryTimeout))
	defer cancel()
	path, err := cli.ModelPath(tryModel)
	if err != nil {
		return err
	}
	cache, err := cli.CacheDir("optimized")
	if err != nil {
		return err
	}
	r, err := probe.Run(ctx, cli.Self("bench", "probe"), probe.Spec{
		Path: path, Device: probe.CUDA, CUDA: wire.CUDASpec{Device: uuid}, CacheDir: cache, Batch: 1, SeqLen: 1, Threads: 1, Mode: probe.ModeApart,
	})
	switch {
	case err != nil:
		return err
	case r.Deviation == nil || r.Deviation.NotFinite > 0 || r.Deviation.RelToMax > tryTolerance:
		return fmt.Errorf("its outputs are wrong: %+v", r.Deviation)
	}
	return nil
}
