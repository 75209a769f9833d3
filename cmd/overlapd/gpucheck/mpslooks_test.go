package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/fake"
	"github.com/overlapd/overlapd/cuda/mps/fakemps"
)

// underFake returns a check of a GPU whose MPS is the fake, and where it looks for
// temporary files.
func underFake(t *testing.T, role string) *check {
	t.Helper()
	program, err := fakemps.Install(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	short, err := os.MkdirTemp("", "gpuc") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, err := filepath.Glob(filepath.Join(short, "*")); err != nil || len(left) > 0 {
			t.Errorf("left: %q, %v", left, err)
		}
		os.RemoveAll(short)
	})
	t.Setenv("TMPDIR", short)
	t.Setenv(roleVariable, role)
	o := DefaultOptions()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.Device, o.GPU, o.MPS, o.Command, o.Progress = cutcost.CUDA, testDevice, program, []string{self}, func(string) {}
	return &check{Options: o, report: newReport(&o, time.Now())}
}

// TestFactsOfFake: facts, a MIG device and its name come from NVML.
func TestFactsOfFake(t *testing.T) {
	gpus := fake.New(fake.A100, fake.H100)
	gpus.SetMIG(1, true)
	if err := gpus.Place(1, 9, 0, 3); err != nil {
		t.Fatal(err)
	}
	c := underFake(t, healthy)
	c.nvml = func() (*cuda.Host, error) { return cuda.Open(cuda.Options{Library: gpus}) }
	c.GPU = "1"
	c.report.Facts = &Facts{}
	if err := c.addGPU(c.report.Facts); err != nil || c.report.Device != fake.H100.Name || c.deviceName() != gpus.Devices[1].UUID {
		t.Errorf("%s, %s, %v", c.report.Device, c.deviceName(), err)
	}
	c.GPU = c.report.Facts.GPU.Devices[1].Instances[0].UUID
	if err := c.addGPU(c.report.Facts); err != nil || c.report.Device != fake.H100.Name+", MIG 3g.40gb" || c.deviceName() != c.GPU {
		t.Errorf("%s, %s, %v", c.report.Device, c.deviceName(), err)
	}
	got := answers(c.report.Looks)
	if len(got["F2"]) != 1 || got["F2"][0] != Holds || got["F5"][0] != Holds {
		t.Errorf("%+v", c.report.Looks)
	}
	if err := gpus.StartProcess(c.GPU, 4711, 1<<20); err != nil {
		t.Fatal(err)
	}
	if pids, err := c.listed(); err != nil || !slices.Equal(pids, []int{4711}) {
		t.Errorf("listed %v, %v", pids, err)
	}
	c.GPU = "7"
	if err := c.addGPU(c.report.Facts); !errors.Is(err, ErrDevice) || !strings.Contains(err.Error(), "this host has") {
		t.Errorf("got %v", err)
	}
	if !gpus.Closed() {
		t.Error("NVML is left open")
	}
}

// answers returns the answers of looks by number.
func answers(looks []Look) map[string][]string {
	by := map[string][]string{}
	for _, l := range looks {
		by[l.ID] = append(by[l.ID], l.Answer)
	}
	return by
}

// TestLookAtMPS: the fake is as MPS is taken to be, but for terminated clients,
// which it lets go on; and no NVML lists its clients.
func TestLookAtMPS(t *testing.T) {
	c := underFake(t, healthy)
	if err := c.lookAtMPS(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := answers(c.report.Looks)
	for _, id := range []string{"P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12", "P13", "P15", "P16", "P17", "P18", "S1", "S2", "E12", "E15", "E20", "F4"} {
		if len(got[id]) == 0 {
			t.Errorf("%s was not looked at", id)
		}
	}
	want := map[string][]string{"P7": {Holds, Misses, Holds}, "F4": {Misses}}
	for _, l := range c.report.Looks {
		if want[l.ID] == nil && l.Answer != Holds {
			t.Errorf("%s %s: %s", l.ID, l.Answer, l.Saw)
		}
		if l.Saw == "" || len(l.Saw) > sawMax+10 {
			t.Errorf("%s saw %q", l.ID, l.Saw)
		}
	}
	for id, list := range want {
		if !slices.Equal(got[id], list) {
			t.Errorf("%s: %q, want %q", id, got[id], list)
		}
	}
	if table := c.report.lookTable(); len(table.Rows) != len(c.report.Looks) || table.Rows[0][1] != Misses {
		t.Errorf("%q", table.Rows)
	}
}

// TestLookAtOddMPS: what MPS prints otherwise is found out and does not end the
// check.
func TestLookAtOddMPS(t *testing.T) {
	for behaviour, want := range map[string]string{
		"garbage ps":                                   "P6",
		"garbage get_server_status":                    "P5",
		"garbage get_client_list":                      "P4",
		"garbage set_default_active_thread_percentage": "",
		"garbage get_default_active_thread_percentage": "P8",
		"exit no such device":                          "P1",
		"slow":                                         "P16",
	} {
		t.Run(behaviour, func(t *testing.T) {
			c := underFake(t, healthy)
			c.patience = 2 * time.Second
			// The fake reads how to behave beside its pipes, whose folder is made up.
			wait := make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			go func() { wait <- behaveSoon(ctx, os.Getenv("TMPDIR"), behaviour) }()
			_ = c.lookAtMPS(ctx) // what went wrong is in the looks
			if err := <-wait; err != nil {
				t.Fatal(err)
			}
			misses := map[string]bool{}
			for _, l := range c.report.Looks {
				if l.Answer == Misses && l.ID != "F4" && l.ID != "P7" {
					misses[l.ID] = true
				}
			}
			if want != "" && !misses[want] {
				t.Errorf("%s does not miss: %v", want, slices.Sorted(maps.Keys(misses)))
			}
		})
	}
}

// behaveSoon tells the fake how to behave as soon as its folder is there.
func behaveSoon(ctx context.Context, dir, behaviour string) error {
	for ctx.Err() == nil {
		found, _ := filepath.Glob(filepath.Join(dir, "overlapd-gpu-check-*"))
		if len(found) == 1 {
			return fakemps.Behave(filepath.Join(found[0], "mps", "pipe"), behaviour)
		}
		time.Sleep(time.Millisecond)
	}
	return ctx.Err()
}

func TestLookAtMPSWithout(t *testing.T) {
	c := underFake(t, healthy)
	c.MPS = "/absent/nvidia-cuda-mps-control"
	if err := c.lookAtMPS(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "MPS: ") {
		t.Errorf("got %v", err)
	}
	c = underFake(t, healthy)
	c.GPU = "0"
	if err := c.lookAtMPS(t.Context()); err == nil || answers(c.report.Looks)["P1"][0] != Misses {
		t.Errorf("got %v, %v", err, c.report.Looks)
	}
	c.Device = cutcost.CPU
	c.report.Looks = nil
	if err := c.lookAtMPS(t.Context()); err != nil || len(c.report.Looks) > 0 {
		t.Errorf("a rehearsal looks at MPS: %v, %v", c.report.Looks, err)
	}
}

// TestClientsThatFail: a client that ends, prints nonsense or hangs is told of.
func TestClientsThatFail(t *testing.T) {
	for script, want := range map[string]string{
		"exit 1": "ended by itself", "echo nonsense; read x": `it printed "nonsense"`, `echo '{"error":"no GPU"}'`: "no GPU",
	} {
		c := underFake(t, healthy)
		c.Command = []string{"/bin/sh", "-c", script}
		if _, err := c.startClient(t.Context(), os.Environ()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", script, err)
		}
	}
	c := underFake(t, healthy)
	c.Command = []string{"/bin/sh", "-c", `echo '{}'; read x; echo '{"error":"lost"}'`}
	r, err := c.startClient(t.Context(), os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.ask(t.Context(), "copy"); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("got %v", err)
	}
	if _, err := r.ask(t.Context(), "copy"); err == nil {
		t.Error("a client that ended answers")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.answer(ctx); err == nil {
		t.Error("it answers after all")
	}
	r.stop()
}

func TestVariants(t *testing.T) {
	c := underFake(t, healthy)
	c.Budget = time.Second
	if err := c.measureVariants(t.Context()); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range c.report.Variants {
		names = append(names, v.Variant)
	}
	if fmt.Sprint(names) != fmt.Sprint([]string{usualVariant, spinning, exhaustive}) {
		t.Errorf("%q", names)
	}
	if rows := c.report.variantTable().Rows; len(rows) != 3 || rows[2][1] != exhaustive {
		t.Errorf("%q", rows)
	}
	t.Setenv(roleVariable, noProbes)
	if err := c.measureVariants(t.Context()); err == nil || !strings.Contains(err.Error(), usualVariant+" and 2 more") {
		t.Errorf("got %v", err)
	}
}

// TestLookAtOrphans: servers that outlive their control daemon are found and ended
// with it.
func TestLookAtOrphans(t *testing.T) {
	c := underFake(t, healthy)
	done := make(chan error, 1)
	go func() { done <- behaveSoon(t.Context(), os.Getenv("TMPDIR"), "orphan") }()
	if err := c.lookAtMPS(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	got := answers(c.report.Looks)
	if !slices.Equal(got["P12"], []string{Holds}) || !slices.Equal(got["P15"], []string{Holds}) {
		t.Errorf("%v", c.report.Looks)
	}
}

// TestLookAtMPSInterrupted: an interrupt ends the looks, and leaves nothing.
func TestLookAtMPSInterrupted(t *testing.T) {
	for _, at := range []string{"once", "its daemon's start"} {
		c := underFake(t, healthy)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			// What is looked at can be seen by its effects only: the daemon's socket.
			if at != "once" {
				for ctx.Err() == nil {
					if found, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*", "mps", "pipe", "control")); len(found) > 0 {
						return
					}
					time.Sleep(time.Millisecond)
				}
			}
		}()
		if err := c.lookAtMPS(ctx); err == nil {
			t.Errorf("at %s: it ended well", at)
		}
		cancel()
	}
}
