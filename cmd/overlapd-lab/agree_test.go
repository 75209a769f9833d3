package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/predictor"
)

// agreement is one load, for the simulator and for a daemon on the same device,
// emulated.
type agreement struct {
	device, predictor string // files
	policy            string
	models            []string
	target            time.Duration
	qps               float64
	queries           int
	maxBatch          int
	devices           int // that are alike
}

// roundTime is about what the daemon takes for a round besides its group.
const roundTime = 100 * time.Microsecond

// TestAgreement serves the same queries in the simulator and over HTTP. What
// the two say is compared only if OVERLAPD_AGREE is set, since that takes a
// machine with nothing else to do. It may name another load:
//
//	OVERLAPD_AGREE="a100.device.json a100.predictor.json overlap resnet50,bert 75ms 120 1200 1"
//
// A ninth field is the number of such devices in the pool.
func TestAgreement(t *testing.T) {
	examples := filepath.Join("..", "..", "docs", "examples")
	a := agreement{
		device: filepath.Join(examples, "synthetic.device.json"), predictor: filepath.Join(examples, "synthetic.predictor.json"),
		policy: "overlap", models: []string{"cnn", "encoder"}, target: 30 * time.Millisecond, qps: 150, queries: 60, maxBatch: 16, devices: 1,
	}
	order := strings.Fields(os.Getenv("OVERLAPD_AGREE"))
	switch len(order) {
	case 0:
		a.target = time.Minute // whatever else the machine does
	case 1:
		a.queries = 1500
	case 8, 9:
		var errs [5]error
		a.device, a.predictor, a.policy, a.models = order[0], order[1], order[2], strings.Split(order[3], ",")
		a.target, errs[0] = time.ParseDuration(order[4])
		a.qps, errs[1] = strconv.ParseFloat(order[5], 64)
		a.queries, errs[2] = strconv.Atoi(order[6])
		a.maxBatch, errs[3] = strconv.Atoi(order[7])
		if len(order) == 9 {
			a.devices, errs[4] = strconv.Atoi(order[8])
		}
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	default:
		t.Fatalf("OVERLAPD_AGREE has %d fields, want 1, 8 or 9", len(order))
	}
	simulated, queries := a.simulate(t)
	served := a.serve(t, queries)
	t.Logf("simulated: violations %.2f %%, p99 %.3f of the target; served: %.2f %%, %.3f",
		100*simulated.violations, simulated.p99, 100*served.violations, served.p99)
	if len(order) == 0 {
		return
	}
	if math.Abs(simulated.violations-served.violations) > 0.02 {
		t.Error("violations differ by more than 2 points")
	}
	if math.Abs(simulated.p99-served.p99) > 0.1*simulated.p99 {
		t.Error("p99 differs by more than 10 %")
	}
}

// outcome is what came out: p99 of latency over target, of answered queries.
type outcome struct{ violations, p99 float64 }

func (a *agreement) simulate(t *testing.T) (outcome, []sim.Query) {
	t.Helper()
	profile, err := device.ReadFile(a.device)
	if err != nil {
		t.Fatal(err)
	}
	on, err := device.NewModel(profile)
	if err != nil {
		t.Fatal(err)
	}
	file, err := predictor.ReadFile(a.predictor)
	if err != nil {
		t.Fatal(err)
	}
	queries := make([]sim.Query, a.queries)
	sc := sim.Scenario{
		Policy: a.policy, Device: on, Devices: a.devices, Dispatch: sim.Pool, Predictor: file, Seed: 5, Queries: a.queries, Plan: true, RoundTime: roundTime,
		Arrivals: sim.Arrivals{Process: sim.Poisson, QPS: a.qps},
	}
	sc.Observer.Answer = func(x *sim.Answer) { queries[x.Number] = x.Query }
	for _, name := range a.models {
		at := on.Index(name)
		if at < 0 {
			t.Fatalf("the device does not know %s", name)
		}
		m := on.Models()[at]
		s := sim.Service{Name: name, Model: name, Target: a.target, MaxBatch: a.maxBatch, QueueLimit: 256, Sizes: m.Sizes}
		if m.SeqLens[0] > 0 {
			s.SeqLens = m.SeqLens
		}
		sc.Services = append(sc.Services, s)
	}
	r, err := sim.Run(sc)
	if err != nil {
		t.Fatal(err)
	}
	return outcome{r.Violations, r.P99OverTarget}, queries
}

// serve sends the queries when they are due. Each has one answer.
func (a *agreement) serve(t *testing.T, queries []sim.Query) outcome {
	t.Helper()
	url, stop := a.daemon(t)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	var mu sync.Mutex
	var ratios []float64
	dropped := 0
	var clients sync.WaitGroup
	begin := time.Now()
	for _, q := range queries {
		body := requestOf(&q)
		time.Sleep(time.Until(begin.Add(q.At)))
		clients.Go(func() {
			sent := time.Now()
			r, err := client.Post(url+a.models[q.Service]+"/infer", "application/json", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			_, err = io.Copy(io.Discard, r.Body)
			r.Body.Close()
			if err != nil {
				t.Error(err)
			}
			took := time.Since(sent)
			mu.Lock()
			defer mu.Unlock()
			switch r.StatusCode {
			case http.StatusOK:
				ratios = append(ratios, float64(took)/float64(a.target))
			case http.StatusServiceUnavailable:
				dropped++
			default:
				t.Errorf("status %d", r.StatusCode)
			}
		})
	}
	clients.Wait()
	client.CloseIdleConnections()
	stop()
	if len(ratios)+dropped != len(queries) || len(ratios) == 0 {
		t.Fatalf("%d answered and %d dropped of %d", len(ratios), dropped, len(queries))
	}
	slices.Sort(ratios)
	at, _ := slices.BinarySearch(ratios, 1)
	late := len(ratios) - at
	return outcome{float64(dropped+late) / float64(len(queries)), ratios[(len(ratios)*99+99)/100-1]}
}

func requestOf(q *sim.Query) []byte {
	datatype, columns := "FP32", 4
	if q.SeqLen > 0 {
		datatype, columns = "INT64", q.SeqLen
	}
	data := strings.TrimSuffix(strings.Repeat("0,", q.Size*columns), ",")
	return fmt.Appendf(nil, `{"inputs":[{"name":"input","datatype":%q,"shape":[%d,%d],"data":[%s]}]}`, datatype, q.Size, columns, data)
}

// daemon serves on the emulated device until stop is called.
func (a *agreement) daemon(t *testing.T) (url string, stop func()) {
	t.Helper()
	c := config.Default()
	c.GRPCListen = ""
	c.Listen, c.StateDir, c.Policy = "127.0.0.1:0", t.TempDir(), a.policy
	c.DeviceProfile, c.Predictor.File = a.device, a.predictor
	for i := range a.devices {
		c.Devices = append(c.Devices, config.Device{Name: fmt.Sprint("gpu", i), Kind: config.DeviceEmulated})
	}
	for _, name := range a.models {
		s := config.DefaultService()
		s.Name, s.Model, s.Target, s.MaxBatch = name, config.EmulatedPrefix+name, a.target, a.maxBatch
		c.Services = append(c.Services, s)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(c, daemon.Options{Version: "test", Nodes: [][]int{{0}}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- d.Run(ctx, context.Background()) }()
	for begin := time.Now(); !d.Ready() && time.Since(begin) < time.Minute; {
		time.Sleep(50 * time.Millisecond)
	}
	return "http://" + d.Addr().String() + "/v2/models/", func() {
		end()
		if err := <-over; err != nil {
			t.Error(err)
		}
	}
}
