package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/cuda/mps"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor/child"
	gpufake "github.com/overlapd/overlapd/internal/fakes/fakegpu"
	"github.com/overlapd/overlapd/internal/fakes/fakemps"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments"
	"github.com/overlapd/overlapd/segments/wire"
	segworker "github.com/overlapd/overlapd/segments/worker"
)

// gpuPatience is how long a test on the fake GPU waits for what must happen.
const gpuPatience = 60 * time.Second

// fakeGPUEngine runs on the CPU and is a client of MPS: when its server is gone,
// so is its device.
type fakeGPUEngine struct {
	segworker.Engine
	client *fakemps.Client // nil where MPS is off
}

// loadOnFakeGPU is what a worker on the fake GPU does instead of opening CUDA.
func loadOnFakeGPU(spec wire.LoadSpec, memory segworker.Memory, progress segworker.ProgressFunc) (segworker.Engine, error) {
	if spec.CUDA == nil { // its device are cores beside the GPU
		return segments.LoadONNX(spec, memory, progress)
	}
	if !strings.HasPrefix(os.Getenv("CUDA_VISIBLE_DEVICES"), "MIG-") && !strings.HasPrefix(os.Getenv("CUDA_VISIBLE_DEVICES"), "GPU-") {
		return nil, errors.New("this worker was sent to no GPU")
	}
	var client *fakemps.Client
	if pipe := os.Getenv("CUDA_MPS_PIPE_DIRECTORY"); pipe != os.DevNull {
		var err error
		if client, err = fakemps.Connect(pipe); err != nil {
			return nil, fmt.Errorf("%w: %w", wire.ErrDeviceLost, err)
		}
	}
	spec.CUDA = nil
	engine, err := segments.LoadONNX(spec, memory, progress)
	if client == nil {
		return engine, err
	}
	return &fakeGPUEngine{engine, client}, err
}

func (e *fakeGPUEngine) Run(id models.BatchID, start, end, threads int, stop *uint32, out segworker.OutputFunc) (segworker.Ran, error) {
	select {
	case <-e.client.Lost():
		return segworker.Ran{}, fmt.Errorf("%w: the server is gone", wire.ErrDeviceLost)
	default:
	}
	if err := ordered(); err != nil {
		return segworker.Ran{}, err
	}
	return e.Engine.Run(id, start, end, threads, stop, out)
}

// faultsVariable names a folder where a test orders faults of workers, a file
// for each, named by its process.
const faultsVariable = "OVERLAPD_TEST_FAULTS"

// Faults that can be ordered.
const (
	faultMemory = "memory"
	faultLost   = "lost"
	faultHang   = "hang"
)

// ordered is the fault of this worker that was ordered, once.
func ordered() error {
	path := filepath.Join(os.Getenv(faultsVariable), strconv.Itoa(os.Getpid()))
	order, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	os.Remove(path)
	switch string(order) {
	case faultMemory:
		return fmt.Errorf("%w: it was ordered", wire.ErrDeviceMemory)
	case faultLost:
		return fmt.Errorf("%w: it was ordered", wire.ErrDeviceLost)
	case faultHang:
		time.Sleep(time.Hour) // a kernel that does not end
	}
	return nil
}

// gpuRig is a daemon with an endpoint, real workers, a fake GPU and a fake MPS.
type gpuRig struct {
	*Daemon
	t      *testing.T
	server *gpufake.Server
	before string // state of the GPU
	config config.Config
	opts   Options
	log    fmt.Stringer
	stop   func() error
}

// newGPURig prepares a daemon; the services run tiny_add.
func newGPURig(t *testing.T, services ...string) *gpuRig {
	t.Helper()
	if _, err := ort.Find(); err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "gpu") // the path of a socket has little room
	if err != nil {
		t.Fatal(err)
	}
	level := zerolog.GlobalLevel() // which a reload sets
	t.Cleanup(func() { os.RemoveAll(dir); zerolog.SetGlobalLevel(level) })
	program, err := fakemps.Install(dir)
	if err != nil {
		t.Fatal(err)
	}
	log := fakeworkers.NewLog()
	r := &gpuRig{t: t, server: gpufake.New(), config: config.Default(), log: log}
	c := &r.config
	c.Device, c.Listen, c.GRPCListen, c.StateDir = config.DeviceCUDA, "127.0.0.1:0", "", t.TempDir()
	c.MPS.Dir = filepath.Join(dir, "mps")
	c.Ready = config.ReadyAll // so that waiting for it waits for every worker
	c.Profile.OnStart, c.Worker.Threads = false, 1
	c.Worker.InputBytes, c.Worker.OutputBytes = 1<<20, 1<<20
	for _, name := range services {
		s := config.DefaultService()
		s.Name, s.Model, s.Target = name, "zoo:tiny_add", gpuPatience
		c.Services = append(c.Services, s)
	}
	r.opts = Options{
		Worker: []string{os.Args[0], workerArgument}, Version: "test", Device: "a processor", Nodes: [][]int{{0}},
		Log: zerolog.New(log),
		GPU: gpu.Options{
			NVML: func() (*cuda.Host, error) { return cuda.Open(r.server) }, Boot: "this boot", MPS: mps.Options{
				Program: program, Poll: 20 * time.Millisecond, Policy: child.Policy{BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond},
				ReadyTimeout: gpuPatience, CommandTimeout: gpuPatience, StopTimeout: gpuPatience,
			},
			Probe: func(context.Context, string) error { return nil },
		},
	}
	r.before = r.server.State()
	return r
}

// divide puts the services on instances that the daemon creates.
func (r *gpuRig) divide(instances ...mig.Want) *gpuRig {
	c := &r.config
	c.Device, c.MIG.Owner, c.Devices = config.DeviceAuto, true, nil
	for i, want := range instances {
		d := config.Device{Name: fmt.Sprint("part", i), Kind: config.DeviceCUDA, GPU: c.GPU, MIG: want.Profile}
		c.Devices = append(c.Devices, d)
		for _, name := range want.Services {
			c.Service(name).On = []string{d.Name}
		}
	}
	c.GPU = ""
	return r
}

// start runs the daemon until the test ends, and then looks whether anything
// is left.
func (r *gpuRig) start() {
	r.t.Helper()
	if err := r.config.Validate(); err != nil {
		r.t.Fatal(err)
	}
	d, err := New(r.config, r.opts)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Daemon = d
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx, context.Background()) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	r.t.Cleanup(r.finish)
}

func (r *gpuRig) finish() {
	if err := r.stop(); err != nil {
		r.t.Error(err)
	}
	if now := r.server.State(); now != r.before {
		r.t.Errorf("the GPU is\n%snot as before\n%s", now, r.before)
	}
	if !r.server.Closed() {
		r.t.Error("NVML is open")
	}
	if left := descendants(); len(left) > 0 {
		r.t.Errorf("processes are left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(r.config.StateDir, "mig.json")); err == nil {
		r.t.Error("the record of instances is left")
	}
	if r.t.Failed() {
		r.t.Log(r.log)
	}
}

// descendants returns the processes of this binary's children, and of servers
// that were theirs.
func descendants() (left []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/exe")
	self, _ := os.Readlink("/proc/self/exe")
	for _, path := range stats {
		pid := filepath.Base(filepath.Dir(path))
		if exe, err := os.Readlink(path); err == nil && exe == self && pid != strconv.Itoa(os.Getpid()) {
			left = append(left, pid)
		}
	}
	return left
}

// eventually waits until something holds.
func (r *gpuRig) eventually(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(gpuPatience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: not after %v\n%s", what, gpuPatience, r.log)
		}
	}
}

func (r *gpuRig) url(path string) string { return "http://" + r.Addr().String() + path }

// ask sends one query and returns the status and the body of the answer.
func (r *gpuRig) ask(client *http.Client, service string) (int, string) {
	numbers := strings.TrimSuffix(strings.Repeat("3,", 16), ",")
	input := func(name string) string {
		return fmt.Sprintf(`{"name":%q,"datatype":"INT32","shape":[1,16],"data":[%s]}`, name, numbers)
	}
	body := fmt.Sprintf(`{"inputs":[%s,%s]}`, input("INPUT0"), input("INPUT1"))
	resp, err := client.Post(r.url("/v2/models/"+service+"/infer"), "application/json", strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// overview reads the status page.
func (r *gpuRig) overview() (o struct {
	Services []struct {
		Name, Fault string
		Ready       bool
	}
	GPU []struct {
		Device, UUID string
		Services     []string
		Sample       *struct {
			Memory *struct {
				Total uint64 `json:"total_bytes"`
			}
			Utilization any
		}
		MPS *struct {
			Phase      string
			PID        int
			Starts     int
			ServerPIDs []int `json:"server_pids"`
		}
	}
	Devices   []status.Device
	Predictor status.Predictor
}) {
	r.t.Helper()
	resp, err := http.Get(r.url("/overlapd/status"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&o); err != nil {
		r.t.Fatalf("%v\n%s", err, text)
	}
	http.DefaultClient.CloseIdleConnections()
	return o
}

// get returns what a path of the endpoint answers.
func (r *gpuRig) get(path string) string {
	r.t.Helper()
	resp, err := http.Get(r.url(path))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// pids returns the workers of all services, by name.
func (r *gpuRig) pids() map[string]int {
	all := map[string]int{}
	for _, s := range r.backend.Services() {
		for _, u := range r.devices {
			if state, err := r.backend.Workers(u.index).State(s.ID); err == nil {
				all[s.Name] = state.PID
			}
		}
	}
	return all
}

// load sends queries to all services, each from two clients, until it is
// stopped. Every query must get one answer: an output that is right, or an
// error that says why.
func (r *gpuRig) load() (stop func() (answered int)) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	answered, done := 0, make(chan struct{})
	for i := range 2 * len(r.config.Services) {
		name := r.config.Services[i/2].Name
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				status, text := r.ask(client, name)
				right := status == 200 && strings.Contains(text, "[6,6,6")
				refused := (status == 503 || status == 500) && strings.Contains(text, `"reason"`)
				if !right && !refused {
					r.t.Errorf("%s: %d %s", name, status, text)
				}
				mu.Lock()
				answered++
				mu.Unlock()
			}
		})
	}
	return func() int {
		close(done)
		wg.Wait()
		return answered
	}
}

// servers returns the MPS servers of a part, once there is one.
func (r *gpuRig) servers(part int) (pids []int) {
	r.t.Helper()
	r.eventually("an MPS server", func() bool {
		pids = r.overview().GPU[part].MPS.ServerPIDs
		return len(pids) > 0
	})
	return pids
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if pid <= 0 {
		t.Fatal("there is no worker to kill") // and 0 is everybody here
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// sorted returns the names whose process differs.
func changed(before, after map[string]int) (names []string) {
	for name, pid := range before {
		if after[name] != pid {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
