package test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/overlapd/overlapd/cmd/overlapd/load"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/models/zoo"
)

// turnTime is for how long a server is asked before it is another's turn, warmTime what of
// that comes before anything counts, and idleTime for how long a turn a daemon is watched
// that nobody asks.
const (
	turnTime = 2 * time.Second
	warmTime = 200 * time.Millisecond
	idleTime = 5 * time.Second
)

// endpointCase is one kind of load and the servers that are put under it.
type endpointCase struct {
	name        string
	model       string // of the zoo; its services have this name
	grpc        bool
	connections int
	batch       int // max_batch
	threads     int
	servers     []string
}

var endpointCases = []endpointCase{
	{"http, 1 connection", "tiny_identity", false, 1, 1, 1, []string{"overlapd", "triton", "pipe", "echo"}},
	{"http, 16 connections", "tiny_identity", false, 16, 1, 1, []string{"overlapd", "triton", "pipe", "echo"}},
	{"http, 16 connections, max_batch 16", "tiny_identity", false, 16, 16, 1, []string{"overlapd", "triton"}},
	{"grpc, 1 connection", "tiny_identity", true, 1, 1, 1, []string{"overlapd", "triton", "pipe", "echo"}},
	{"grpc, 16 connections", "tiny_identity", true, 16, 1, 1, []string{"overlapd", "triton", "pipe", "echo"}},
	{"grpc, 16 connections, max_batch 16", "tiny_identity", true, 16, 16, 1, []string{"overlapd", "triton"}},
	{"resnet50, http, 1 connection", "resnet50", false, 1, 1, 2, []string{"overlapd", "triton", "engine"}},
	{"resnet50, http, 4 connections", "resnet50", false, 4, 1, 2, []string{"overlapd", "triton", "engine"}},
}

// cost is what a server made of a load: times in microseconds, and what all processes of the
// server took for a request.
type cost struct {
	Answers  float64 `json:"answers_per_s"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	CPU      float64 `json:"cpu_us"`
	Switches float64 `json:"context_switches"`
}

// endpointRow is the medians of a server's turns.
type endpointRow struct {
	Case   string `json:"case"`
	Server string `json:"server"`
	cost
	Calls float64 `json:"system_calls"` // 0 if they could not be counted
	Turns []cost  `json:"turns"`
}

// BenchmarkEndpoint compares what a query costs over the daemon's endpoints with what it
// costs over others, all asked by one client in turns, so that they see the same machine:
// "echo" is fasthttp or grpc-go that answers by itself, "pipe" the same asking a child
// process through a pipe, "triton" the server in the folder TRITON, and "engine" ONNX
// Runtime in a closed loop of its own. BUILDS are the paths of other builds of overlapd that
// are to be asked as well. It prints a table and writes what it found to the file
// ENDPOINT_OUT. System calls are counted by perf in a further turn, in which nothing else
// is measured.
func BenchmarkEndpoint(b *testing.B) {
	var rows []endpointRow
	for _, c := range endpointCases {
		b.Run(strings.ReplaceAll(c.name, ", ", "/"), func(b *testing.B) { rows = append(rows, c.measure(b)...) })
	}
	idle := map[string]float64{}
	for _, services := range []int{2, 64} {
		b.Run(fmt.Sprintf("idle/%d services", services), func(b *testing.B) { idle[fmt.Sprint(services)] = idleShare(b, services) })
	}
	t := report.NewTable("load", "server", "answers/s", "p50 µs", "p99 µs", "cpu µs", "syscalls", "switches", "turns")
	for _, r := range rows {
		t.Rowf("%s\t%s\t%.0f\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f\t%d", r.Case, r.Server, r.Answers, r.P50, r.P99, r.CPU, r.Calls, r.Switches, len(r.Turns))
	}
	_ = t.WriteText(os.Stdout)
	for services, share := range idle {
		fmt.Printf("idle, %s services: %.3f %% of a core\n", services, 100*share)
	}
	if path := os.Getenv("ENDPOINT_OUT"); path != "" {
		text, err := json.MarshalIndent(map[string]any{"rows": rows, "idle": idle}, "", "\t")
		if err = cmp.Or(err, os.WriteFile(path, text, 0o600)); err != nil {
			b.Fatal(err)
		}
	}
}

// measure has each server of the case asked once in each iteration.
func (c *endpointCase) measure(b *testing.B) (rows []endpointRow) {
	var servers []*served
	names := c.servers
	if names[0] == "overlapd" {
		names = slices.Concat(names, strings.Fields(os.Getenv("BUILDS")))
	}
	for _, name := range names {
		if s := c.start(b, name); s != nil {
			servers = append(servers, s)
		}
	}
	for b.Loop() {
		for _, s := range servers {
			s.turns = append(s.turns, s.ask())
		}
		slices.Reverse(servers) // none is always the first
	}
	b.ReportMetric(0, "ns/op")
	for _, s := range servers {
		of := func(what func(cost) float64) float64 {
			var all []float64
			for _, t := range s.turns {
				all = append(all, what(t))
			}
			return middle(all)
		}
		rows = append(rows, endpointRow{Case: c.name, Server: s.name, Turns: s.turns, Calls: s.systemCalls(), cost: cost{
			of(func(c cost) float64 { return c.Answers }), of(func(c cost) float64 { return c.P50 }), of(func(c cost) float64 { return c.P99 }),
			of(func(c cost) float64 { return c.CPU }), of(func(c cost) float64 { return c.Switches }),
		}})
	}
	slices.SortStableFunc(rows, func(x, y endpointRow) int {
		return slices.Index(names, x.Server) - slices.Index(names, y.Server)
	})
	return rows
}

// middle returns the median of values in any order, zero without values.
func middle(values []float64) float64 {
	n, sorted := len(values), slices.Sorted(slices.Values(values))
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// served is a server under measurement.
type served struct {
	*process // whose daemon may be another server
	*endpointCase
	name     string
	web, rpc string // addresses
	turns    []cost
	answered float64 // in all
}

// start starts a server of the case, or returns nil if it cannot be had.
func (c *endpointCase) start(b *testing.B, name string) *served {
	s := &served{endpointCase: c, name: name}
	switch {
	case name == "overlapd", strings.Contains(name, "/"):
		defer func(own string) { program = own }(program)
		if name != "overlapd" {
			program = name
		}
		s.process = serve(b, config{grpc: "127.0.0.1:0", top: `log_level = "info"`, services: []service{{
			c.model, "zoo:" + c.model, fmt.Sprintf("max_batch = %d\nthreads = %d\nqueue_limit = 4096", c.batch, c.threads)}}})
		s.settles()
		s.web, s.rpc = s.address, s.grpcAddress()
	case name == "triton":
		batching := ""
		if s.batch > 1 {
			batching = "dynamic_batching {}"
		}
		if !s.startTriton(b, tritonConfig(s.batch, 1, s.threads)+batching, s.model) {
			return nil
		}
	case name == "engine":
		s.process = &process{t: b}
		if _, err := zoo.Build(c.model, modelDir, 1, nil); err != nil {
			b.Fatal(err)
		}
	default:
		s.web, s.rpc, _ = strings.Cut(strings.TrimSpace(s.other(b, exec.Command(os.Args[0]), peerVariable+"="+name)), " ")
	}
	return s
}

// other starts a server that is no daemon and ends it after the benchmark. It returns the
// first line of its output.
func (s *served) other(b *testing.B, cmd *exec.Cmd, env ...string) (line string) {
	s.process = &process{t: b, run: newRun()}
	cmd.Env = append(append(os.Environ(), marker+"="+s.run), env...)
	_, err := cmd.StdinPipe() // which ends with these tests
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill() // Triton waits for idle connections
		_ = cmd.Wait()
	})
	line, _ = bufio.NewReader(out).ReadString('\n')
	return line
}

// tritonConfig returns a config.pbtxt of Triton that sets the batch size, the number of
// instances and the threads of each, and nothing else.
func tritonConfig(batch, instances, threads int) string {
	return fmt.Sprintf("backend: \"onnxruntime\" max_batch_size: %d instance_group { count: %d kind: KIND_CPU }\n"+
		"parameters { key: \"intra_op_thread_count\" value: { string_value: \"%d\" } }\n", batch, instances, threads)
}

// startTriton starts Triton with models of the zoo that share the text of a config.pbtxt. It
// returns false if there is no Triton.
func (s *served) startTriton(b *testing.B, config string, models ...string) bool {
	root, repository := os.Getenv("TRITON"), b.TempDir()
	if root == "" {
		b.Log("without Triton: TRITON names no folder with its bin/tritonserver, lib and backends/onnxruntime (see scripts/fetch-triton)")
		return false
	}
	for _, model := range models {
		version := filepath.Join(repository, model, "1")
		file, err := zoo.Build(model, modelDir, 1, nil)
		if err == nil {
			err = os.MkdirAll(version, 0o700)
		}
		if err == nil {
			err = os.Symlink(file, filepath.Join(version, "model.onnx"))
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(repository, model, "config.pbtxt"), []byte(config), 0o600)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	s.web, s.rpc = freeAddress(b), freeAddress(b)
	args := []string{"--model-repository=" + repository, "--backend-directory=" + root + "/backends", "--allow-metrics=false"}
	for flag, address := range map[string]string{"http": s.web, "grpc": s.rpc} {
		host, port, _ := net.SplitHostPort(address)
		args = append(args, "--"+flag+"-address="+host, "--"+flag+"-port="+port)
	}
	cmd := exec.Command("sh", append([]string{"-c", `echo; exec "$0" "$@"`, root + "/bin/tritonserver"}, args...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	s.other(b, cmd, "LD_LIBRARY_PATH="+root+"/lib")
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(glance) {
		if a, err := http.Get("http://" + s.web + "/v2/health/ready"); err == nil {
			a.Body.Close()
			if a.StatusCode == http.StatusOK {
				return true
			}
		}
	}
	b.Fatalf("Triton is not ready: %s", &said)
	return false
}

func freeAddress(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// ask puts the load of the case on a server for one turn.
func (s *served) ask() (c cost) {
	if s.name == "engine" {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "OVERLAPD_ORT="+library, fmt.Sprintf("%s=engine %s %d %d %g", peerVariable,
			filepath.Join(modelDir, s.model+".onnx"), s.threads, s.connections, turnTime.Seconds()))
		out, err := cmd.Output()
		if err = cmp.Or(err, json.Unmarshal(out, &c)); err != nil {
			s.t.Fatal(err)
		}
		return c
	}
	pids := s.processes()
	before := usageOf(pids)
	if s.grpc {
		took, elapsed := s.askRPC()
		s.answered += float64(len(took))
		return costOf(took, elapsed, usageOf(pids).since(before))
	}
	o := load.DefaultOptions()
	o.URL, o.Services, o.Connections, o.SeqLen = "http://"+s.web, []string{s.model}, s.connections, 4
	o.Duration, o.Warmup = turnTime, warmTime
	r, err := load.Run(context.Background(), o)
	if err != nil || len(r.Errors) > 0 {
		s.t.Fatalf("%s: %v, %v", s.name, err, r)
	}
	n := float64(r.Requests + r.Warmup.Requests)
	s.answered += n
	u := usageOf(pids).since(before)
	return cost{r.Throughput, 1000 * r.Latency.P50, 1000 * r.Latency.P99, u.seconds / n * 1e6, u.switches / n}
}

// askRPC is a closed loop over gRPC, of tiny_identity.
func (s *served) askRPC() (took []time.Duration, elapsed time.Duration) {
	r := &inference.ModelInferRequest{ModelName: s.model, RawInputContents: [][]byte{make([]byte, 16)}, Inputs: []*inference.ModelInferRequest_InferInputTensor{
		{Name: "INPUT0", Datatype: "FP32", Shape: []int64{1, 4}},
	}}
	var clients []inference.GRPCInferenceServiceClient
	for range s.connections {
		c, err := grpc.NewClient(s.rpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			s.t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, inference.NewGRPCInferenceServiceClient(c))
	}
	return closedLoop(s.connections, turnTime, func(i int) {
		if _, err := clients[i].ModelInfer(context.Background(), r); err != nil {
			s.t.Error(err)
		}
	})
}

// closedLoop has so many callers ask again and again, and returns how long each time took.
func closedLoop(callers int, lasting time.Duration, ask func(caller int)) (took []time.Duration, elapsed time.Duration) {
	begin := time.Now()
	all := make([][]time.Duration, callers)
	var running sync.WaitGroup
	for i := range callers {
		running.Go(func() {
			for time.Since(begin) < lasting {
				asked := time.Now()
				ask(i)
				all[i] = append(all[i], time.Since(asked))
			}
		})
	}
	running.Wait()
	return slices.Concat(all...), time.Since(begin)
}

func costOf(took []time.Duration, elapsed time.Duration, u taken) cost {
	slices.Sort(took)
	n, at := float64(len(took)), func(part float64) float64 { return float64(share(took, part)) / 1e3 }
	return cost{n / elapsed.Seconds(), at(0.5), at(0.99), u.seconds / n * 1e6, u.switches / n}
}

// taken is what processes have taken of processors since they began.
type taken struct{ seconds, switches float64 }

// usageOf reads the clocks of processes, and the switches of their threads.
func usageOf(pids []int) (u taken) {
	for _, pid := range pids {
		var t unix.Timespec
		if unix.ClockGettime(int32(^pid<<3|2), &t) == nil { // the clock of a process, see clock_getcpuclockid
			u.seconds += float64(t.Nano()) / 1e9
		}
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		for _, file := range files {
			text, _ := os.ReadFile(file)
			for line := range strings.Lines(string(text)) {
				if name, value, _ := strings.Cut(line, ":"); strings.HasSuffix(name, "ctxt_switches") {
					n, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
					u.switches += n
				}
			}
		}
	}
	return u
}

func (u taken) since(before taken) taken {
	return taken{u.seconds - before.seconds, u.switches - before.switches}
}

// systemCalls returns how many the server makes for a request, 0 if perf cannot count them.
func (s *served) systemCalls() float64 {
	if s.name == "engine" {
		return 0
	}
	var list []string
	for _, pid := range s.processes() {
		list = append(list, strconv.Itoa(pid))
	}
	var out bytes.Buffer
	perf := exec.Command("perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", strings.Join(list, ","))
	perf.Stderr = &out
	if perf.Start() != nil {
		return 0
	}
	time.Sleep(warmTime) // until it counts
	before := s.answered
	s.ask()
	_ = perf.Process.Signal(os.Interrupt)
	_ = perf.Wait()
	first, _, _ := strings.Cut(out.String(), ",")
	calls, err := strconv.ParseFloat(first, 64)
	if err != nil {
		s.t.Logf("system calls are not counted: %s", out.String())
	}
	return calls / (s.answered - before)
}

// idleShare returns what part of a core a daemon with so many services takes that nobody asks.
func idleShare(b *testing.B, services int) float64 {
	c := config{top: `log_level = "info"`}
	for i := range services {
		c.services = append(c.services, service{name: fmt.Sprint("s", i), model: "zoo:tiny_identity"})
	}
	p := serve(b, c)
	p.settles()
	turns, before := 0.0, usageOf(p.processes())
	for ; b.Loop(); turns++ {
		time.Sleep(idleTime)
	}
	return usageOf(p.processes()).since(before).seconds / idleTime.Seconds() / turns
}
