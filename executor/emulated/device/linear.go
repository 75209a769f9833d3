package device

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

const (
	// LinearMaxSize is the largest batch of a linear device. At published rates, even the
	// fastest model needs a second for it, longer than any target.
	LinearMaxSize = 4096

	// linearOperators is the number of operators of a model without known exit points: the
	// median over the models of Shepherd (table 4), which belong to the same families.
	linearOperators = 78
	// maxLinearOperators keeps a file with the largest number of models within its limit.
	maxLinearOperators = 1024

	nanosOfMilli = 1e6

	// maxLinearMillis keeps the time of the largest batch within predictor.MaxTime.
	maxLinearMillis = float64(predictor.MaxTime) / nanosOfMilli / (LinearMaxSize + 1)
)

var errLinear = errors.New("unusable linear models")

var linearSheet = textfile.Sheet{
	Form:    "the columns model, alpha_ms and beta_ms, and optionally gpu, slo_ms and exit_points; below, a row for each model",
	MaxRows: 1 << 12, Unusable: errLinear, TooLarge: errLinear,
}

// ReadLinear makes a profile from a CSV file of models whose batch time is linear in the batch
// size (Symphony, tables 3 and 4; Shepherd, table 4): alpha_ms per query plus beta_ms per batch.
// The device has no spread, all operators of a model take equally long, and it runs one batch at a
// time. If the file has a column gpu, device selects one of its GPUs, and may be empty if there is
// only one. Otherwise device is the name of the new device.
func ReadLinear(path, device string) (*Profile, error) {
	var r linearReader
	return r.profile(linearSheet.ReadFile(path, r.head, r.row), path, device)
}

// Linear is ReadLinear for CSV rows in memory: the name of a model, the time per query and the time
// per batch, in milliseconds.
func Linear(device, rows string) (*Profile, error) {
	var r linearReader
	return r.profile(linearSheet.Read(strings.NewReader("model,alpha_ms,beta_ms\n"+rows), device, r.head, r.row), device, device)
}

// linearReader collects the models of a file by GPU. The first fields are the indices of the
// columns, -1 for those that the file lacks.
type linearReader struct {
	model, alpha, beta, gpu, target, operators int

	gpus     []string
	profiles map[string]*Profile
}

func (r *linearReader) head(t *textfile.Table) {
	r.model, r.alpha, r.beta = t.Require("model"), t.Require("alpha_ms"), t.Require("beta_ms")
	r.gpu, r.target, r.operators = t.Column("gpu"), t.Column("slo_ms"), t.Column("exit_points")
	r.profiles = map[string]*Profile{}
}

func (r *linearReader) row(t *textfile.Table) {
	name, gpu, operators := t.Fields[r.model], "", linearOperators
	if r.gpu >= 0 {
		gpu = t.Fields[r.gpu]
	}
	if r.operators >= 0 {
		operators = t.Whole(r.operators, 1, maxLinearOperators)
	}
	alpha := math.Round(t.Number(r.alpha, 0, maxLinearMillis) * nanosOfMilli)
	beta := math.Round(t.Number(r.beta, 0, maxLinearMillis) * nanosOfMilli)
	p := r.profiles[gpu]
	if p == nil {
		p = &Profile{Format: Format, Device: gpu, Targets: map[string]float64{}}
		p.Network.Spans = 1
		r.gpus, r.profiles[gpu] = append(r.gpus, gpu), p
	}
	switch known := slices.ContainsFunc(p.Network.Models, func(m predictor.FeatureModel) bool { return m.Name == name }); {
	case name == "":
		t.Refuse(r.model, "every model must have a name")
	case r.gpu >= 0 && gpu == "":
		t.Refuse(r.gpu, "every model must name the device it was measured on")
	case known:
		t.Refuse(r.model, "the model is duplicate; remove one")
	case alpha < float64(operators) && beta < float64(operators):
		t.Refuse(r.beta, "each of %d operators must take at least a nanosecond; give alpha_ms or beta_ms", operators)
	}
	if r.target >= 0 {
		p.Targets[name] = t.Number(r.target, leastTarget, mostTarget)
	}
	p.Rows++
	p.Network.Models = append(p.Network.Models, linearModel(name, alpha, beta, operators))
}

// linearModel returns a model whose batches take alpha per query plus beta, in whole nanoseconds.
// The prefix sums of operator times are also linear in the batch size and whole numbers, so that
// interpolation is exact for every span.
func linearModel(name string, alpha, beta float64, operators int) predictor.FeatureModel {
	m := predictor.FeatureModel{Name: name, Operators: operators, MaxSize: LinearMaxSize}
	upTo := func(total float64, operator int) float64 {
		return math.Round(total * float64(operator) / float64(operators))
	}
	for _, size := range []float64{1, LinearMaxSize} {
		c := predictor.CostCell{Size: int(size)}
		for i := range operators {
			micros := (size*(upTo(alpha, i+1)-upTo(alpha, i)) + upTo(beta, i+1) - upTo(beta, i)) / 1e3
			c.Micros, c.Work = append(c.Micros, micros), append(c.Work, micros)
		}
		m.Costs = append(m.Costs, c)
	}
	return m
}

// profile returns the profile of the selected device after the file was read with err.
func (r *linearReader) profile(err error, name, device string) (*Profile, error) {
	if err != nil {
		return nil, err
	}
	p := r.profiles[r.gpus[0]]
	switch gpus := strings.Join(r.gpus, ", "); {
	case r.gpu < 0:
		p.Device = device
	case device == "" && len(r.gpus) > 1:
		return nil, fmt.Errorf("%s: %w: they were measured on %s; name one with --device", name, errLinear, gpus)
	case device != "":
		if p = r.profiles[device]; p == nil {
			return nil, fmt.Errorf("%s: %w: none was measured on %.40q; name one of %s with --device", name, errLinear, device, gpus)
		}
	}
	return p, p.Validate()
}

// Linear reports whether the device has no network. A span then takes the sum of its operators'
// costs, and the spans of a group run one after another.
func (p *Profile) Linear() bool { return len(p.Network.Layers) == 0 }

// linear returns the time of a span on a linear device, in microseconds. As a difference of whole
// nanoseconds, the times of consecutive spans add up exactly to that of the whole batch, wherever
// it is cut.
func (m *Model) linear(s *models.Span) float64 {
	costs := m.encoder.models[s.Service].costs.At(s.Size, s.SeqLen)
	before, _ := costs.Span(0, s.Start)
	until, _ := costs.Span(0, s.End)
	return (math.Round(until*1e3) - math.Round(before*1e3)) / 1e3
}
