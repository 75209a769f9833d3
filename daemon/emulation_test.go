package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/bbolt"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap/journal"
	"github.com/overlapd/overlapd/predictor"
)

// formula is a device on which each operator takes 20 µs for each query of a
// batch, and a group as long as its longest span and a half of the others.
type formula struct{}

const (
	formulaName      = "formula"
	formulaOperator  = 20 * time.Microsecond
	formulaOperators = 10
)

func (formula) Covers(g models.Group) bool { return len(g.Spans) <= 2 }

func (formula) Latency(g models.Group) time.Duration {
	var sum, longest time.Duration
	for _, s := range g.Spans {
		took := formulaOperator * time.Duration(s.Len()*s.Size)
		sum, longest = sum+took, max(longest, took)
	}
	return longest + (sum-longest)/2
}

func (f formula) Sample(g models.Group, random *rand.Rand) time.Duration {
	return time.Duration(float64(f.Latency(g)) * (1 + random.Float64()/10))
}

// formulaModels are those that the formula knows: the second takes sequences.
func formulaModels() []device.ModelInfo {
	return []device.ModelInfo{
		{Name: "first", Operators: formulaOperators, Sizes: []int{1, 4, 8}, SeqLens: []int{0}},
		{Name: "second", Operators: formulaOperators, Sizes: []int{1, 8}, SeqLens: []int{8, 32}},
	}
}

// formulaEmulation stands for a profile.
func formulaEmulation(c *config.Config) (*emulation, error) {
	e := &emulation{device: formula{}, name: formulaName, text: "emulated: " + formulaName, known: formulaModels(), hash: "hash of the profile", units: 1}
	return e, e.check(c)
}

// formulaFile is a predictor that knows both models, and predicts that groups
// take three quarters of what they take one after another.
func formulaFile() *predictor.File {
	f := fakeworkers.Predictor(2)
	f.Device = formulaName
	for i := range f.Features.Models {
		m := &f.Features.Models[i]
		m.Name, m.Hash, m.Operators, m.MaxSize, m.MaxSeqLen, m.Costs = formulaModels()[i].Name, "", formulaOperators, 8, 32*i, nil
		for _, size := range []int{1, 8} {
			c := predictor.CostCell{Size: size, SeqLen: 8 * i}
			for range formulaOperators {
				micros := float64(formulaOperator.Microseconds()) * float64(size)
				c.Micros, c.Work = append(c.Micros, micros), append(c.Work, 0.75*micros)
			}
			m.Costs = append(m.Costs, c)
		}
	}
	width := f.Features.Width()
	f.Layers = []predictor.Layer{{Inputs: width, Outputs: 1, Weights: make([]float32, width), Bias: []float32{1}}}
	return f
}

func emulatedConfig(t *testing.T, change func(*config.Config)) config.Config {
	t.Helper()
	return fakeworkers.Config(2, func(c *config.Config) {
		c.Listen, c.StateDir, c.Policy = "127.0.0.1:0", t.TempDir(), "overlap"
		c.Device, c.DeviceProfile = "emulated", "formula.device.json"
		c.Worker.InputBytes, c.Worker.OutputBytes = 1<<20, 1<<20
		for i := range c.Services {
			c.Services[i].Model = config.EmulatedPrefix + formulaModels()[i].Name
		}
		if change != nil {
			change(c)
		}
	})
}

// emulatedDaemon is a daemon on an emulated device that serves.
type emulatedDaemon struct {
	*Daemon
	t    *testing.T
	log  fmt.Stringer
	end  context.CancelFunc
	over chan error
}

func serveEmulated(t *testing.T, c config.Config) *emulatedDaemon {
	t.Helper()
	return serveEmulatedOn(t, c, formulaEmulation)
}

// serveEmulatedOn serves on what read returns, or on the profile if it is nil.
func serveEmulatedOn(t *testing.T, c config.Config, read func(*config.Config) (*emulation, error)) *emulatedDaemon {
	t.Helper()
	return serveEmulatedBy(t, c, Options{emulation: read})
}

// serveEmulatedBy serves with such an emulation and such workers.
func serveEmulatedBy(t *testing.T, c config.Config, o Options) *emulatedDaemon {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	log := fakeworkers.NewLog()
	d := &emulatedDaemon{t: t, log: log, over: make(chan error, 1)}
	var err error
	o.Version, o.Device, o.Nodes, o.Log = "test", "this machine", [][]int{{0}}, zerolog.New(log)
	d.Daemon, err = New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	d.end = end
	go func() { d.over <- d.Run(ctx, context.Background()) }()
	t.Cleanup(d.stop)
	for begin := time.Now(); !d.Ready(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("not ready:\n%s", d.log)
		}
	}
	return d
}

// stop ends the daemon as a signal does, once, and fails the test if it does not
// end well.
func (d *emulatedDaemon) stop() {
	if d.end == nil {
		return
	}
	d.end()
	d.end = nil
	http.DefaultClient.CloseIdleConnections()
	if err := <-d.over; err != nil {
		d.t.Errorf("the daemon ends with %v\n%s", err, d.log)
	}
}

func (d *emulatedDaemon) url(path string) string { return fmt.Sprintf("http://%s%s", d.Addr(), path) }

// get returns an answer and its header Server.
func (d *emulatedDaemon) get(path string) (body, server string) {
	d.t.Helper()
	r, err := http.Get(d.url(path))
	if err != nil {
		d.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		d.t.Fatalf("%s: status %d, %v: %s", path, r.StatusCode, err, text)
	}
	return string(text), r.Header.Get("Server")
}

// infer sends a query of zeros to a service and returns the status and answer.
func (d *emulatedDaemon) infer(service, size, seqLen int) (int, string) {
	columns, datatype := 4, "FP32"
	if service == 1 {
		columns, datatype = seqLen, "INT64"
	}
	data := strings.TrimSuffix(strings.Repeat("0,", size*columns), ",")
	body := fmt.Sprintf(`{"inputs":[{"name":"input","datatype":%q,"shape":[%d,%d],"data":[%s]}]}`, datatype, size, columns, data)
	r, err := http.Post(d.url(fmt.Sprintf("/v2/models/s%d/infer", service)), contentJSON, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(text)
}

// An open loop of queries of both services: each is answered once, none sooner
// than the device can, groups are formed, and what was decided can be decided
// again.
func TestEmulatedLoad(t *testing.T) { loadEmulated(t, 1) }

// On shares of a device batches do not hinder each other, and gain more there than in groups.
func TestEmulatedShares(t *testing.T) {
	shared := 0
	for _, r := range loadEmulated(t, 4) {
		if r.Round != nil && r.Round.Spans[0].Share > 0 {
			shared++
		}
	}
	if shared == 0 {
		t.Error("no round is on a share")
	}
}

// loadEmulated does so on a device of some units, and returns the decisions.
func loadEmulated(t *testing.T, units int) []*journal.Record {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p.predictor.json")
	if err := formulaFile().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	c := emulatedConfig(t, func(c *config.Config) {
		c.Predictor.File, c.Decisions.Log = path, true
		c.Services[1].MaxBatch = 8
	})
	d := serveEmulatedOn(t, c, func(c *config.Config) (*emulation, error) {
		e, err := formulaEmulation(c)
		e.units = units
		return e, err
	})
	const queries, gap = 400, 500 * time.Microsecond
	random := rand.New(rand.NewPCG(3, 3))
	var clients sync.WaitGroup
	var answered [2]int
	var mu sync.Mutex
	for i := range queries {
		service, size, seqLen := i%2, 1+random.IntN(8), 1+random.IntN(32)
		clients.Go(func() {
			begin := time.Now()
			status, text := d.infer(service, size, seqLen)
			took := time.Since(begin)
			least := formulaOperator * time.Duration(formulaOperators*size)
			if want := fmt.Sprintf(`"shape":[%d,4]`, size); status != http.StatusOK || !strings.Contains(text, want) || took < least {
				t.Errorf("service %d, size %d: status %d after %v, at least %v: %s", service, size, status, took, least, text)
				return
			}
			mu.Lock()
			answered[service]++
			mu.Unlock()
		})
		time.Sleep(gap)
	}
	clients.Wait()
	o, ok := d.backend.FullStatus()
	if !ok || answered != [2]int{queries / 2, queries / 2} {
		t.Fatalf("%d answers", answered)
	}
	for i, s := range o.Services {
		if s.Arrived != queries/2 || s.Finished != queries/2 || s.Queued != 0 {
			t.Errorf("service %d: %+v", i, s)
		}
	}
	grouped := false
	for _, s := range o.Predictor.Shapes {
		grouped = grouped || s.Source == "network" && s.Runs > 0
	}
	if !grouped && units == 1 || o.Predictor.Phase != "serving" || o.Rounds == 0 {
		t.Errorf("no group was run, or not by the predictor: %+v", o.Predictor)
	}
	for _, s := range d.backend.Services() {
		state, err := d.backend.Workers(0).State(s.ID)
		if err != nil || state.OutputLeases != 0 || state.InFlight != 0 {
			t.Errorf("%s: %+v, %v", s.Name, state, err)
		}
	}
	d.stop()
	return d.replays()
}

// replays fails the test unless the decision log reproduces, and returns its records.
func (d *emulatedDaemon) replays() (all []*journal.Record) {
	d.t.Helper()
	log, err := os.ReadFile(filepath.Join(d.Config().StateDir, journal.FileName))
	if err != nil {
		d.t.Fatal(err)
	}
	found, err := journal.Replay("log", bytes.NewReader(log), func(_ *journal.Log, r *journal.Record) bool {
		all = append(all, r)
		return true
	})
	if err != nil || found.Rounds == 0 {
		d.t.Fatalf("replay: %v, %+v", err, found)
	}
	return all
}

// Whatever says what runs a model says that nothing does.
func TestEmulatedIsLabelled(t *testing.T) {
	d := serveEmulated(t, emulatedConfig(t, nil))
	for path, want := range map[string][]string{
		"/v2":                  {`"model_repository(unload_dependents)","emulated"]`},
		"/v2/models/s0":        {`"platform":"emulated"`, `{"name":"input","datatype":"FP32","shape":[-1,4]}`, `{"name":"output","datatype":"FP32","shape":[-1,4]}`},
		"/v2/models/s1":        {`"platform":"emulated"`, `{"name":"input","datatype":"INT64","shape":[-1,-1]}`},
		"/v2/models/s0/config": {`"platform":"emulated","backend":"emulated"`, `"max_batch_size":8`, `"device":{"string_value":"emulated: formula"}`, `"sha256":{"string_value":"hash of the profile"}`},
		"/overlapd/status":     {`"device":"emulated: formula","emulated":true`},
	} {
		body, server := d.get(path)
		if server != "overlapd (emulated)" {
			t.Errorf("%s: Server: %s", path, server)
		}
		says(t, body, want...)
	}
	says(t, d.log.String(), `"level":"warn"`, "the device is emulated: nothing is computed", "emulated: formula")
}

// What the device does not know is refused, and costs the others nothing.
func TestEmulatedRefuses(t *testing.T) {
	d := serveEmulated(t, emulatedConfig(t, nil))
	for _, c := range []struct {
		service, size, seqLen int
		want                  string
	}{
		{0, 9, 0, "the batch size is 9, and the limit of this service is 8"},
		{1, 1, 33, "the sequence length is 33, and the limit of this service is 32"},
		{0, 1 << 12, 0, "the limit of this service is 8"},
	} {
		if status, text := d.infer(c.service, c.size, c.seqLen); status != http.StatusBadRequest || !strings.Contains(text, c.want) {
			t.Errorf("%+v: status %d: %s", c, status, text)
		}
	}
	if status, text := d.infer(1, 8, 32); status != http.StatusOK {
		t.Errorf("status %d: %s", status, text)
	}
}

// Solo times are those of the profile, and nothing is measured or stored.
func TestEmulatedIsNotMeasured(t *testing.T) {
	c := emulatedConfig(t, nil)
	d := serveEmulated(t, c)
	o, ok := d.backend.FullStatus()
	if !ok || o.Predictor.Phase != "solo" || o.Predictor.Measuring != nil {
		t.Fatalf("%+v", o.Predictor)
	}
	says(t, o.Predictor.Reason, "an emulated device is not measured", "overlapd train", "predictor.file")
	for i := range 2 {
		if status, text := d.infer(i, 8, 32); status != http.StatusOK {
			t.Errorf("status %d: %s", status, text)
		}
		// The second is predicted by how much the first was off, too.
		rounds := d.backend.Timeline().Read(0, 9, nil).Rounds
		if off := float64(rounds[i].Predicted) / float64(8*formulaOperators*formulaOperator); i == 0 && off != 1 || off < 0.5 || off > 2 {
			t.Errorf("service %d is predicted %v of what it takes", i, off)
		}
	}
	d.stop()
	s, _, err := openState(c.StateDir, checkState)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(loop.SoloProfiles)).ForEach(func(key, _ []byte) error { return fmt.Errorf("a profile is stored: %s", key) })
	})
	if err != nil {
		t.Error(err)
	}
	c.StateDir = t.TempDir()
	_, err = New(c, Options{Offline: true, Log: zerolog.Nop(), emulation: formulaEmulation})
	if err == nil || !errors.Is(err, ErrEmulated) {
		t.Errorf("measuring it: %v", err)
	}
}

// A predictor of another device is refused, one of the same is taken by the
// names of its models, whatever the services are called.
func TestEmulatedPredictor(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*predictor.File)
		phase  string
		want   string
	}{
		"fits":           {func(*predictor.File) {}, "serving", "trained on 1000 groups"},
		"hashes":         {func(f *predictor.File) { f.Features.Models[0].Hash = "of a file" }, "serving", "trained on"},
		"another device": {func(f *predictor.File) { f.Device = "abacus" }, "solo", `trained on "abacus", this is "formula"`},
		"another model":  {func(f *predictor.File) { f.Features.Models[0].Name = "third" }, "solo", `unknown are those of ["s0"]`},
	} {
		t.Run(name, func(t *testing.T) {
			f := formulaFile()
			c.change(f)
			path := filepath.Join(t.TempDir(), "p.predictor.json")
			if err := f.WriteFile(path); err != nil {
				t.Fatal(err)
			}
			d := serveEmulated(t, emulatedConfig(t, func(c *config.Config) { c.Predictor.File = path }))
			o, ok := d.backend.FullStatus()
			if !ok || o.Predictor.Phase != c.phase || !strings.Contains(o.Predictor.Reason, c.want) {
				t.Errorf("%s: %s", o.Predictor.Phase, o.Predictor.Reason)
			}
		})
	}
}

func TestEmulationFaults(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   []string
	}{
		"unknown model": {func(c *config.Config) { c.Services[1].Model = "emulated:resnet50" }, []string{`service s1: model "resnet50" is not in the profile, which has first, second`}},
		"variant": {func(c *config.Config) {
			c.Services[1].Variants = []config.Variant{{Model: "emulated:second", Accuracy: 1}, {Model: "emulated:third", Accuracy: 2}}
		}, []string{`service s1/third: model "third" is not in the profile, which has first, second`}},
		"large batch": {func(c *config.Config) { c.Services[0].MaxBatch = 9 }, []string{"service s0: max_batch is 9, but the largest batch of first in the profile is 8"}},
	} {
		config := emulatedConfig(t, c.change)
		_, err := New(config, Options{Log: zerolog.Nop(), emulation: formulaEmulation})
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		says(t, err.Error(), c.want...)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"missing": "", "pipe": "", "empty": "\n", "foreign": `{"format":"overlapd-predictor/1"}`, "truncated": `{"format":"overlapd-device/1",`} {
		config := emulatedConfig(t, func(c *config.Config) { c.DeviceProfile = filepath.Join(dir, name) })
		if name == "pipe" { // nobody writes to it
			if err := syscall.Mkfifo(config.DeviceProfile, 0o600); err != nil {
				t.Fatal(err)
			}
		} else if text != "" {
			writeFile(t, config.DeviceProfile, text)
		}
		if _, err := EmulatedDevice(config); err == nil || !strings.Contains(err.Error(), config.DeviceProfile) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := New(config, Options{Log: zerolog.Nop()}); err == nil {
			t.Errorf("%s: a daemon of it is made", name)
		}
	}
}
