package daemon

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	gpufake "github.com/overlapd/overlapd/internal/fakes/fakegpu"
	"github.com/overlapd/overlapd/internal/fakes/fakemps"
)

// Two MIG instances with two services each, behind one endpoint: MPS dies in
// every way under load, workers of its instance restart together and those of
// the other do not notice, and each query has one answer.
func TestInstances(t *testing.T) {
	r := newGPURig(t, "a", "b", "c", "d").divide(
		mig.Want{Profile: "3g.40gb", Services: []string{"a", "c"}}, mig.Want{Profile: "2g.20gb", Services: []string{"b", "d"}})
	r.start()
	r.eventually("ready", r.Ready)
	o := r.overview()
	if len(o.GPU) != 2 || len(o.Devices) != 2 || len(o.Services) != 4 ||
		o.GPU[0].Device != "NVIDIA H100 80GB HBM3, compute capability 9.0, MIG 3g.40gb, MPS" || !slices.Equal(o.GPU[1].Services, []string{"b", "d"}) {
		t.Errorf("%+v", o)
	}
	if r.devices[0].text == r.devices[1].text {
		t.Error("both instances are the same kind of device to a predictor")
	}
	stop := r.load()
	for _, trouble := range []struct {
		name  string
		cause func()
	}{
		{"the server dies", func() { kill(t, r.servers(0)[0]) }},
		{"the server faults", func() {
			pipe := r.config.MPS.Dir + "/" + r.overview().GPU[0].UUID[:12] + "/pipe"
			if err := fakemps.Fault(pipe, r.servers(0)[0]); err != nil {
				t.Error(err)
			}
		}},
		{"the control daemon dies", func() { kill(t, r.overview().GPU[0].MPS.PID) }},
	} {
		r.eventually("ready", r.Ready)
		before := r.pids()
		r.servers(0)
		trouble.cause()
		r.eventually(trouble.name+": other workers of the first instance", func() bool {
			after := r.pids()
			return r.Ready() && after["a"] != before["a"] && after["c"] != before["c"]
		})
		if diff := cmp.Diff([]string{"a", "c"}, changed(before, r.pids())); diff != "" {
			t.Errorf("%s: restarted workers: %s", trouble.name, diff)
		}
		r.eventually(trouble.name+": workers are clients of MPS", func() bool { return len(r.servers(0)) == 1 })
	}
	if n := stop(); n == 0 {
		t.Error("no query was answered")
	}
	for _, s := range r.config.Services {
		if status, text := r.ask(http.DefaultClient, s.Name); status != http.StatusOK {
			t.Errorf("%s: %d %s", s.Name, status, text)
		}
	}
	r.eventually("a sample", func() bool { return r.overview().GPU[1].Sample != nil })
	if s := r.overview().GPU[1].Sample; s.Memory == nil || s.Memory.Total == 0 || s.Utilization != nil {
		t.Errorf("of an instance there is memory and no utilization: %+v", s)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestGroupsNeedMPS has services share a GPU with MPS and without. Where their kernels take
// turns, each group has one span, and the device is another one for what is learned.
func TestGroupsNeedMPS(t *testing.T) {
	for mode, shares := range map[string]bool{config.MPSOwn: true, config.MPSOff: false} {
		t.Run(mode, func(t *testing.T) {
			r := newGPURig(t, "a", "b")
			r.config.MPS.Mode, r.config.Policy = mode, "abacus" // which groups by what is known of each alone
			if !shares {
				r.config.MPS.Dir = ""
			}
			r.start()
			r.eventually("ready", r.Ready)
			// Of the groups that ran, how many had one span at most, and how many there were.
			groups := func() (single, all string) {
				for line := range strings.Lines(r.get("/metrics")) {
					if n, ok := strings.CutPrefix(line, `overlapd_group_spans_bucket{le="1"} `); ok {
						single = strings.TrimSpace(n)
					}
					if n, ok := strings.CutPrefix(line, "overlapd_group_spans_count "); ok {
						all = strings.TrimSpace(n)
					}
				}
				return single, all
			}
			stop := r.load()
			r.eventually("groups", func() bool {
				single, all := groups()
				return shares && single != all || !shares && len(all) > 2
			})
			stop()
			if single, all := groups(); all == "" || (single != all) != shares {
				t.Errorf("%s of %s groups have one span", single, all)
			}
			o := r.overview()
			text, said := o.GPU[0].Device, strings.Count(r.log.String(), "operators do not overlap, and no groups are measured")
			if strings.HasSuffix(text, ", MPS") != shares || text != r.devices[0].text || (said == 0) != shares || said > 1 {
				t.Errorf("the device is %q, and the log says %d times that groups have one span", text, said)
			}
			if o.Predictor.Phase != learning.Solo && !shares || strings.Contains(o.Predictor.Reason, "without MPS") == shares {
				t.Errorf("predictor: %+v", o.Predictor)
			}
			http.DefaultClient.CloseIdleConnections()
		})
	}
}

// A service that does not fit is refused with the sums, and the other serves.
func TestNoRoomOnGPU(t *testing.T) {
	r := newGPURig(t, "a", "b", "c").divide(mig.Want{Profile: "1g.10gb", Services: []string{"a", "b", "c"}})
	r.config.Services[0].MPS.PinnedMemory = 8 << 30
	r.config.Services[1].MPS.PinnedMemory = 4 << 30
	r.config.Services[2].MPS.PinnedMemory = 1 << 20
	r.start()
	r.eventually("that one serves and two are given up", func() bool {
		o := r.overview()
		return o.Services[0].Ready && o.Services[1].Fault != "" && o.Services[2].Fault != ""
	})
	o := r.overview()
	for _, want := range []string{"b: it needs 4096 MiB", "a has 8192 MiB", "are left"} {
		if !strings.Contains(o.Services[1].Fault, want) {
			t.Errorf("%q is not in %q", want, o.Services[1].Fault)
		}
	}
	if want := "its limit is 1 MiB"; !strings.Contains(o.Services[2].Fault, want) {
		t.Errorf("%q is not in %q", want, o.Services[2].Fault)
	}
	if status, text := r.ask(http.DefaultClient, "a"); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.ask(http.DefaultClient, "b"); status != http.StatusServiceUnavailable || !strings.Contains(text, query.ReasonGivenUp) {
		t.Errorf("%d %s", status, text)
	}
	http.DefaultClient.CloseIdleConnections()
}

// When MPS is given up, so are its services, and the status says why.
func TestMPSGivenUp(t *testing.T) {
	r := newGPURig(t, "a")
	r.opts.GPU.MPS.RestartLimit = 1
	r.start()
	for range 2 {
		r.eventually("ready", r.Ready)
		starts := r.overview().GPU[0].MPS.Starts
		kill(t, r.overview().GPU[0].MPS.PID)
		r.eventually("an end", func() bool {
			m := r.overview().GPU[0].MPS
			return m.Starts > starts || m.Phase == "given up"
		})
	}
	r.eventually("a fault", func() bool { return r.overview().Services[0].Fault != "" })
	if fault := r.overview().Services[0].Fault; !strings.Contains(fault, "MPS failed permanently") {
		t.Error(fault)
	}
	if status, text := r.ask(http.DefaultClient, "a"); status != http.StatusServiceUnavailable {
		t.Errorf("%d %s", status, text)
	}
	http.DefaultClient.CloseIdleConnections()
}

// What is refused leaves nothing behind.
func TestGPURefused(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(r *gpuRig)
		want   string
	}{
		"no such GPU": {func(r *gpuRig) { r.config.GPU = "3" }, `gpu = "3"`},
		"no room": {func(r *gpuRig) {
			r.divide(mig.Want{Profile: "7g.80gb", Services: []string{"a"}}, mig.Want{Profile: "1g.10gb", Services: []string{"b"}})
		}, "MIG layout does not fit"},
		"no program":   {func(r *gpuRig) { r.config.MPS.Program = "/nonexistent/mps" }, "no MPS control program"},
		"bad listener": {func(r *gpuRig) { r.config.Listen = "unix:/nonexistent/socket" }, "socket"},
	} {
		r := newGPURig(t, "a", "b")
		tt.change(r)
		_, err := New(r.config, r.opts)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if now := r.server.State(); now != r.before || !r.server.Closed() {
			t.Errorf("%s: the GPU is\n%s", name, now)
		}
	}
}

// "auto" takes a GPU that ONNX Runtime can use, else the CPU, and says why.
func TestAuto(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(r *gpuRig)
		gpu    bool
		log    string
	}{
		"a GPU":  {func(*gpuRig) {}, true, "uses the GPU"},
		"no GPU": {func(r *gpuRig) { r.server.Devices = nil }, false, "this host has no GPU"},
		"no CUDA": {func(r *gpuRig) {
			r.opts.GPU.Probe = func(context.Context, string) error { return errors.New("no cuDNN") }
		}, false, "no cuDNN"},
		"not known": {func(r *gpuRig) { r.opts.GPU.Probe = nil }, false, "unknown whether"},
	} {
		r := newGPURig(t, "a")
		r.config.Device, r.opts.Offline = config.DeviceAuto, true
		tt.change(r)
		d, err := New(r.config, r.opts)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if onGPU := len(d.gpus) > 0; onGPU != tt.gpu || (d.Device() == "a processor") == tt.gpu || !strings.Contains(r.log.String(), tt.log) {
			t.Errorf("%s: on a GPU: %t, device %q\n%s", name, onGPU, d.Device(), r.log)
		}
		if err := d.close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPlanGPU(t *testing.T) {
	r := newGPURig(t, "a", "b").divide(mig.Want{Profile: "1g.10gb", Services: []string{"a", "b"}})
	r.config.Services[0].MPS.PinnedMemory = 9900 << 20
	text, err := PlanGPU(r.config, r.opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1. enable MIG mode", "A  1g.10gb", "memory of NVIDIA H100 80GB HBM3, compute capability 9.0, MIG 1g.10gb, MPS: 9984 MiB free",
		"a  9900 MiB", "rejected: " + gpu.ErrNoRoom.Error() + " b"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if r.server.State() != r.before || !r.server.Closed() {
		t.Error("a plan changed something")
	}
	r.config.Device, r.config.MIG.Owner, r.config.Devices = config.DeviceCPU, false, nil
	if text, err := PlanGPU(r.config, r.opts); err != nil || !strings.Contains(text, "no GPU is used") {
		t.Errorf("%q, %v", text, err)
	}
}

// TestSeveralGPUs has a pool of two GPUs and cores of the CPU between them: of services
// that fit one GPU only, each is on another, and refused on the other with the sums.
func TestSeveralGPUs(t *testing.T) {
	r := newGPURig(t, "a", "b", "c", "small")
	r.server.Devices = gpufake.New(gpufake.H100, gpufake.H100).Devices
	r.before = r.server.State()
	c := &r.config
	c.Device = config.DeviceAuto
	c.Devices = []config.Device{{Name: "zero", Kind: "cuda", GPU: "0"}, {Name: "cores", Kind: "cpu"}, {Name: "one", Kind: "cuda", GPU: "1"}}
	for i, give := range []int64{50 << 30, 55 << 30, 20 << 30, 1 << 30} {
		c.Services[i].MPS.PinnedMemory = give
	}
	c.Services[2].On = []string{"zero", "one"}
	text, err := PlanGPU(*c, r.opts)
	if err != nil || strings.Count(text, "memory of NVIDIA H100") != 2 || strings.Count(text, "rejected: ") != 2 ||
		!strings.Contains(text, "b: it needs 56320 MiB") || !strings.Contains(text, "a: it needs 51200 MiB") {
		t.Errorf("%v\n%s", err, text)
	}
	r.start()
	serving := func() (all []string) {
		for _, u := range r.devices {
			for _, s := range r.backend.Services() {
				if state, err := r.backend.Workers(u.index).State(s.ID); err == nil && state.Phase == executor.Ready {
					all = append(all, u.name+":"+s.Name)
				}
			}
		}
		return all
	}
	want := []string{"zero:b", "zero:c", "zero:small", "cores:a", "cores:b", "cores:small", "one:a", "one:c", "one:small"}
	r.eventually("every worker that has room", func() bool { return len(serving()) == len(want) })
	if diff := cmp.Diff(want, serving()); diff != "" {
		t.Error(diff)
	}
	for _, u := range r.devices {
		if on := u.part != nil; on != (u.name != "cores") || on && u.part.UUID != r.server.Devices[u.index/2].UUID {
			t.Errorf("device %s is on %+v", u.name, u.part)
		}
	}
	for _, s := range c.Services {
		if status, text := r.ask(http.DefaultClient, s.Name); status != http.StatusOK {
			t.Errorf("%s: %d %s", s.Name, status, text)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// Two names of one GPU are no two devices.
func TestOneGPUTwice(t *testing.T) {
	r := newGPURig(t, "a")
	r.config.Device = config.DeviceAuto
	r.config.Devices = []config.Device{{Name: "x", Kind: "cuda", GPU: "0"}, {Name: "y", Kind: "cuda", GPU: r.server.Devices[0].UUID}}
	if _, err := New(r.config, r.opts); err == nil || !strings.Contains(err.Error(), `gpu = "0" and gpu = "GPU-`) {
		t.Error(err)
	}
	if !r.server.Closed() {
		t.Error("NVML is open")
	}
}
