package fit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// DeviceOptions say how to make a device of measurements.
type DeviceOptions struct {
	Hidden       []int // units of the hidden layers
	Seed         uint64
	Epochs       int     // 0 for what the number of rows says
	Split        Split   // SplitRandom or SplitGrouped
	TestFraction float64 // of the rows, or of the configurations

	// Progress is called after each epoch if it is not nil.
	Progress func(Progress)
}

// DefaultDeviceOptions returns options for a device as simulations use it: a
// network much larger than that of a predictor.
func DefaultDeviceOptions() DeviceOptions {
	return DeviceOptions{Hidden: []int{128, 128, 128}, Seed: 1, Split: SplitRandom, TestFraction: 0.1}
}

func (o *DeviceOptions) network() Options {
	n := DefaultOptions()
	n.Hidden, n.Seed, n.Epochs, n.Split, n.TestFraction, n.Progress = o.Hidden, o.Seed, o.Epochs, o.Split, o.TestFraction, o.Progress
	return n
}

// Validate returns an error that wraps [ErrOptions] and names every fault.
func (o *DeviceOptions) Validate() error {
	if o.Split == SplitFolds {
		return fmt.Errorf("%w: a device cannot be made with the split %s", ErrOptions, o.Split)
	}
	n := o.network()
	return n.Validate()
}

// DeviceReport says how a device was made, and how far it is off on rows kept
// aside.
type DeviceReport struct {
	Device    string        `json:"device"`
	Models    []string      `json:"models"`
	Rows      int           `json:"rows"`
	TrainRows int           `json:"train_rows"`
	TestRows  int           `json:"test_rows"`
	Seed      uint64        `json:"seed"`
	Split     Split         `json:"split"`
	Seconds   float64       `json:"seconds"`
	MAPETest  float64       `json:"mape_test"` // percent, on all rows kept aside
	Test      device.Test   `json:"test"`
	Checks    device.Checks `json:"checks"`
}

// Device makes a device of a dataset, and of what whole models take alone
// where that is known. The same dataset, times and options give the same
// profile but for Created, which the caller sets.
func Device(ctx context.Context, d *training.Dataset, solo []training.SoloTime, o DeviceOptions) (*device.Profile, *DeviceReport, error) {
	if err := o.Validate(); err != nil {
		return nil, nil, err
	}
	if err := check(d); err != nil {
		return nil, nil, err
	}
	n := o.network()
	folds, err := split(d.Rows, &n, rand.New(rand.NewPCG(o.Seed, 0)))
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	network, err := fitNetwork(ctx, d, at(d.Rows, folds[0].train), &n, "device")
	if err != nil {
		return nil, nil, err
	}
	test := at(d.Rows, folds[0].test)
	predicted, err := predictWith(network, test)
	if err != nil {
		return nil, nil, err
	}
	all, alone, several := testPoints(test, predicted)
	network.Test = errorsOf(all)
	p := &device.Profile{
		Format: device.Format, Device: d.Device, Seed: o.Seed, Rows: len(d.Rows), Network: *network,
		Spread: spreadOf(at(d.Rows, folds[0].train)),
		Test:   device.Test{Alone: errorsOf(alone), Several: errorsOf(several)},
	}
	if p.Solo, err = soloTimes(d, solo); err != nil {
		return nil, nil, err
	}
	r := &DeviceReport{
		Device: d.Device, Rows: len(d.Rows), TrainRows: len(folds[0].train), TestRows: len(test),
		Seed: o.Seed, Split: o.Split, Seconds: time.Since(began).Seconds(),
		MAPETest: mape(all), Test: p.Test, Checks: p.Checks,
	}
	for _, m := range d.Models {
		r.Models = append(r.Models, m.Name)
	}
	return p, r, p.Validate()
}

// testPoints returns rows beside what is predicted of them, and those of one
// span and of several.
func testPoints(rows []training.Row, predicted []float64) (all, alone, several []point) {
	for i := range rows {
		p := point{row: i, measured: rows[i].Median, predicted: predicted[i]}
		all = append(all, p)
		if len(rows[i].Group.Spans) == 1 {
			alone = append(alone, p)
		} else {
			several = append(several, p)
		}
	}
	return all, alone, several
}

// soloTimes puts given solo times beside what was measured of groups of
// nothing else.
func soloTimes(d *training.Dataset, given []training.SoloTime) ([]device.SoloTime, error) {
	var times []device.SoloTime
	for _, s := range given {
		model := d.Model(s.Model)
		if model < 0 {
			return nil, fmt.Errorf("%w: the solo times name %s, of which no group was measured", ErrRows, s.Model)
		}
		times = append(times, device.SoloTime{
			Model: s.Model, Size: s.Size, SeqLen: s.SeqLen, Micros: s.Micros,
			Groups: measuredAlone(d, model, s.Size, s.SeqLen),
		})
	}
	return times, nil
}

// measuredAlone returns the median over the groups of nothing but the whole
// model, 0 if there are none.
func measuredAlone(d *training.Dataset, model, size, seqLen int) float64 {
	var found []float64
	for i := range d.Rows {
		spans := d.Rows[i].Group.Spans
		if s := spans[0]; len(spans) == 1 && int(s.Service) == model && s.Len() == d.Models[model].Operators && s.Size == size && s.SeqLen == seqLen {
			found = append(found, d.Rows[i].Median)
		}
	}
	if len(found) == 0 {
		return 0
	}
	slices.Sort(found)
	return quantile(found, 0.5)
}

// Constants of the spread.
const (
	spreadParts   = 21  // quantiles of a band
	leastBandRows = 200 // a band with fewer joins the one below
)

// spreadEdges is where bands begin, in microseconds.
var spreadEdges = []float64{0, 2e3, 5e3, 10e3, 15e3, 20e3, 30e3, 40e3}

// spreadOf measures how much the runs of groups differ.
func spreadOf(rows []training.Row) device.Spread {
	var s device.Spread
	bySpans := map[int][]training.Row{}
	for _, r := range rows {
		bySpans[len(r.Group.Spans)] = append(bySpans[len(r.Group.Spans)], r)
	}
	for n := 1; n <= predictor.MaxSpans; n++ {
		s.Bands = append(s.Bands, bandsOf(n, bySpans[n])...)
	}
	s.Slow, s.Fast = skewOf(rows)
	return s
}

func bandsOf(spans int, rows []training.Row) []device.SpreadBand {
	if len(rows) < leastBandRows {
		return nil
	}
	slices.SortFunc(rows, func(a, b training.Row) int {
		switch {
		case a.Median < b.Median:
			return -1
		case a.Median > b.Median:
			return 1
		}
		return 0
	})
	var bands []device.SpreadBand
	from := 0
	for i, edge := range spreadEdges {
		to := len(rows)
		if i+1 < len(spreadEdges) {
			next := spreadEdges[i+1]
			to, _ = slices.BinarySearchFunc(rows, next, func(r training.Row, v float64) int {
				if r.Median < v {
					return -1
				}
				return 1
			})
		}
		if to-from < leastBandRows || len(rows)-to < leastBandRows && to < len(rows) {
			continue
		}
		if len(bands) == 0 {
			edge = 0
		}
		bands = append(bands, device.SpreadBand{Spans: spans, Micros: edge, Parts: relativeSpreads(rows[from:to], spreadParts)})
		from = to
	}
	return bands
}

// relativeSpreads returns evenly spaced quantiles of standard deviation over
// median.
func relativeSpreads(rows []training.Row, n int) []float64 {
	parts := make([]float64, len(rows))
	for i := range rows {
		parts[i] = min(rows[i].Std/rows[i].Median, device.MaxSpread)
	}
	slices.Sort(parts)
	picked := make([]float64, n)
	for i := range picked {
		picked[i] = parts[i*(len(parts)-1)/(n-1)]
	}
	return picked
}

// skewOf tells late runs from early ones. Half of the runs are on each side
// of the median, each half as a normal distribution is; the distance of the
// mean from the median, in standard deviations, tells how much wider the late
// half is.
func skewOf(rows []training.Row) (slow, fast float64) {
	var mean, square float64
	for i := range rows {
		mean += (rows[i].Mean - rows[i].Median) / rows[i].Median
		square += rows[i].Std / rows[i].Median
	}
	lean := 0.0
	if square > 0 {
		lean = mean / square
	}
	// The widths a and b: mean (a-b)/√(2π), variance (a²+b²)/2 - mean².
	apart := min(max(lean, -maxLean), maxLean) * math.Sqrt(2*math.Pi)
	both := 2 * (1 + lean*lean)
	middle := math.Sqrt(max(both/2-apart*apart/4, 0))
	return max(middle+apart/2, 0), max(middle-apart/2, 0)
}

// maxLean keeps the early half from vanishing.
const maxLean = 0.5
