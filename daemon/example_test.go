package daemon

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// examples is where the configuration of an emulated device is that people can
// try, with the synthetic profile and the predictor that go with it.
const examples = "../docs/examples"

// exampleModels are what operators of two made-up models cost.
func exampleModels() []predictor.FeatureModel {
	sizes := []int{1, 4, 8, 16}
	cnn := predictor.FeatureModel{Name: "cnn", Operators: 12, MaxSize: 16}
	encoder := predictor.FeatureModel{Name: "encoder", Operators: 16, MaxSize: 16, MaxSeqLen: 128}
	for _, size := range sizes {
		share := 0.4 + 0.02*float64(size) // of the device that an operator keeps busy
		c := predictor.CostCell{Size: size}
		for i := range cnn.Operators {
			c.Micros = append(c.Micros, float64(40+10*(i%4)+size*(30+5*(i%3))))
		}
		c.Work = parts(c.Micros, share)
		cnn.Costs = append(cnn.Costs, c)
		for _, seqLen := range []int{8, 32, 128} {
			c := predictor.CostCell{Size: size, SeqLen: seqLen}
			for i := range encoder.Operators {
				c.Micros = append(c.Micros, float64(30+5*(i%2))+math.Round(0.3*float64(size*seqLen)))
			}
			c.Work = parts(c.Micros, share)
			encoder.Costs = append(encoder.Costs, c)
		}
	}
	return []predictor.FeatureModel{cnn, encoder}
}

func parts(micros []float64, share float64) []float64 {
	work := make([]float64, len(micros))
	for i, m := range micros {
		work[i] = math.Round(10*share*m) / 10
	}
	return work
}

const exampleDevice = "a synthetic device"

var exampleDate = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

// exampleProfile is made of formulas, not of measurements: it takes groups to
// last about as long as the longest span, or as the work of all of them.
func exampleProfile() *device.Profile {
	list := exampleModels()
	width := device.NewEncoder(list).Width
	weights := make([]float32, width)
	weights[width-4] = 0.3 // of how long the group lasts, which counts with the power 0.7 as it is
	exact := predictor.Errors{Rows: 1, Quantiles: predictor.Quantiles{P01: 1, P50: 1, P90: 1, P95: 1, P99: 1}}
	p := &device.Profile{
		Format: device.Format, Device: exampleDevice, Created: exampleDate, Rows: 1,
		Spread: device.Spread{Slow: 1, Fast: 0.5, Bands: []device.SpreadBand{{Spans: 1, Parts: []float64{0.01, 0.02, 0.04}}, {Spans: 2, Parts: []float64{0.02, 0.04, 0.08}}}},
	}
	p.Network.Spans, p.Network.Models = 2, list
	p.Network.Layers = []predictor.Layer{{Inputs: width, Outputs: 1, Weights: weights, Bias: []float32{0}}}
	p.Test.Alone, p.Test.Several, p.Test.Spread = exact, exact, []device.SpreadQuantiles{}
	return p
}

// examplePredictor knows the costs and nothing else, and so is off.
func examplePredictor(t *testing.T) *predictor.File {
	t.Helper()
	f := &predictor.File{
		Format: predictor.Format, Device: exampleDevice, Created: exampleDate, Recipe: "synthetic", Rows: 1, Output: predictor.OutputMicros,
		Features: predictor.Features{Set: predictor.FeaturesModel, Spans: 2, Models: exampleModels()},
	}
	width := f.Features.Width()
	f.Layers = []predictor.Layer{{Inputs: width, Outputs: 1, Weights: make([]float32, width), Bias: []float32{1}}}
	f.Test = predictor.Errors{Rows: 1, Quantiles: predictor.Quantiles{P01: 1, P50: 1, P90: 1, P95: 1, P99: 1}}
	f.Test = exampleErrors(t, f)
	return f
}

// exampleErrors compares a predictor with runs on the device.
func exampleErrors(t *testing.T, f *predictor.File) predictor.Errors {
	t.Helper()
	d, err := device.NewModel(exampleProfile())
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	const rows = 500
	var ratios []float64
	var sum float64
	for range rows {
		var g models.Group
		for i, m := range d.Models() {
			start := random.IntN(m.Operators)
			g.Spans = append(g.Spans, models.Span{
				Service: models.ServiceID(i), Start: start, End: start + 1 + random.IntN(m.Operators-start),
				Size: 1 + random.IntN(16), SeqLen: i * (1 + random.IntN(128)),
			})
		}
		micros, err := f.Predict([]models.Group{g})
		if err != nil {
			t.Fatal(err)
		}
		measured := float64(d.Sample(g, random).Nanoseconds()) / 1e3
		ratios = append(ratios, math.Round(1e4*measured/micros[0])/1e4)
		sum += math.Abs(micros[0]-measured) / measured
	}
	slices.Sort(ratios)
	at := func(part float64) float64 { return ratios[int(part*rows)] }
	return predictor.Errors{Rows: rows, MAPE: math.Round(1e4*sum/rows) / 100,
		Quantiles: predictor.Quantiles{P01: at(0.01), P50: at(0.5), P90: at(0.9), P95: at(0.95), P99: at(0.99)}}
}

// The files of the example are what the formulas give. Run with -update after
// changing them, or the form of the files.
func TestExampleFiles(t *testing.T) {
	for name, value := range map[string]interface{ WriteFile(string) error }{
		"synthetic.device.json": exampleProfile(), "synthetic.predictor.json": examplePredictor(t),
	} {
		path := filepath.Join(examples, name)
		if *update {
			if err := value.WriteFile(path); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(bytes.TrimSpace(got), want) {
			t.Errorf("%s is not what the formulas give; run the test with -update", name)
		}
	}
}

// The example serves, with its predictor.
func TestExampleServes(t *testing.T) {
	c, err := config.Load(filepath.Join(examples, "emulated.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := EmulatedDevice(c); err != nil || text != "emulated: "+exampleDevice {
		t.Errorf("%s, %v", text, err)
	}
	c.StateDir, c.Listen, c.GRPCListen = t.TempDir(), "127.0.0.1:0", ""
	d := serveEmulatedOn(t, c, nil)
	p := d.predictor()
	if p.Phase != "serving" {
		t.Errorf("%s: %s", p.Phase, p.Reason)
	}
	for i := range c.Services {
		body := []string{
			`{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[0,0,0,0]}]}`,
			`{"inputs":[{"name":"input","datatype":"INT64","shape":[1,2],"data":[101,102]}]}`,
		}[i]
		r, err := http.Post(d.url("/v2/models/"+c.Services[i].Name+"/infer"), contentJSON, bytes.NewReader([]byte(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", c.Services[i].Name, r.StatusCode)
		}
	}
}

func (d *emulatedDaemon) predictor() status.Predictor {
	d.t.Helper()
	o, ok := d.backend.FullStatus()
	if !ok {
		d.t.Fatal("the loop does not answer")
	}
	return o.Predictor
}
