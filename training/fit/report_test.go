package fit

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/predictor"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// fixedReport is the report of a made-up fit.
func fixedReport() *Report {
	d := synthetic(6, 1)
	d.Models[0].Name = "<b>"
	var network, linear outcome
	for i, r := range d.Rows {
		network.test = append(network.test, point{i, r.Median, r.Median * (1 + float64(i)/100)})
		linear.test = append(linear.test, point{i, r.Median, r.Median * (1 - float64(i)/10)})
	}
	network.train, linear.train = network.test[:3], linear.test[:3]
	network.folds = []float64{2, 3}
	network.fitted, linear.fitted = 1, 1
	o := DefaultOptions()
	f := &predictor.File{Features: features(d, d.Rows, RecipePaper), Test: errorsOf(network.test)}
	r := newReport(d, &o, []fold{{train: make([]int, 24), test: make([]int, 6)}}, f, &network)
	r.Epochs, r.Seconds = 100, 12.34
	r.Regularization = &regularization{Costs: "firm", Decay: 1, Kept: 0.75, Folds: 4, CostsError: 4.567, Error: 4.321}
	r.add(nameNetwork, d, &network, &linear)
	r.add(nameLinear, d, &linear, nil)
	return r
}

func TestReportText(t *testing.T) {
	var b bytes.Buffer
	if err := fixedReport().Document().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "report.txt")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestErrorsOf(t *testing.T) {
	var points []point
	for i := 1; i <= 100; i++ {
		points = append(points, point{measured: float64(i), predicted: 50})
	}
	got := errorsOf(points)
	want := predictor.Quantiles{P01: 0.02, P50: 1, P90: 1.8, P95: 1.9, P99: 1.98}
	if got.Quantiles != want || got.Rows != 100 {
		t.Errorf("%+v", got)
	}
	if got := mape([]point{{measured: 100, predicted: 90}, {measured: 100, predicted: 130}}); got < 19.999 || got > 20.001 {
		t.Errorf("10 %% and 30 %% are %v %% in the mean", got)
	}
	if q := errorsOf([]point{{measured: 100, predicted: -5}}).Quantiles; q.P99 != 100 {
		t.Errorf("a negative prediction gives a quotient of %v", q.P99)
	}
}
