package device

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/textfile"
)

const (
	// LinearMaxSize is the largest batch of a linear device. At the rates that were
	// published it takes a second even of the fastest model, longer than anybody waits.
	LinearMaxSize = 4096

	// linearOperators is how many operators a model has of which no exit points are
	// known: the median of those of the models of Shepherd (table 4), which are of
	// the same families.
	linearOperators    = 78
	maxLinearOperators = 1024 // so that as many models as there may be fit into a file

	nanosOfMilli = 1e6

	// maxLinearMillis keeps the largest batch within the time of one span.
	maxLinearMillis = float64(predictor.MaxTime) / nanosOfMilli / (LinearMaxSize + 1)
)

var errLinear = errors.New("unusable linear models")

var linearSheet = textfile.Sheet{
	Form:    "the columns model, alpha_ms and beta_ms, and may have gpu, slo_ms and exit_points; below, a row for each model",
	MaxRows: 1 << 12, Unusable: errLinear, TooLarge: errLinear,
}

// ReadLinear makes a profile of a CSV file in which the batches of a model take time
// that is linear in their size (Symphony, tables 3 and 4; Shepherd, table 4): alpha_ms for
// each query and beta_ms for each batch. The device is exact, its operators take equally
// long, and it runs one batch at a time. Where the file has a column gpu, device is the
// one that is wanted, and may be left out if there is one only; else it is its name.
func ReadLinear(path, device string) (*Profile, error) {
	var r linearReader
	return r.profile(linearSheet.ReadFile(path, r.head, r.row), path, device)
}

// Linear is ReadLinear of rows that a program has itself: the name of a model, what a
// query takes and what a batch takes, in milliseconds.
func Linear(device, rows string) (*Profile, error) {
	var r linearReader
	return r.profile(linearSheet.Read(strings.NewReader("model,alpha_ms,beta_ms\n"+rows), device, r.head, r.row), device, device)
}

// linearReader holds the models of a file by the GPUs that they were measured on, and
// the positions of its columns, -1 for those that it does not have.
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
		t.Refuse(r.gpu, "every model must say what it was measured on")
	case known:
		t.Refuse(r.model, "the model stands twice; remove one")
	case alpha < float64(operators) && beta < float64(operators):
		t.Refuse(r.beta, "each of %d operators must take a nanosecond at least; give alpha_ms or beta_ms", operators)
	}
	if r.target >= 0 {
		p.Targets[name] = t.Number(r.target, leastTarget, mostTarget)
	}
	p.Rows++
	p.Network.Models = append(p.Network.Models, linearModel(name, alpha, beta, operators))
}

// linearModel returns a model whose batches of so many queries take alpha for each and
// beta besides, in whole nanoseconds. What operators take up to each is linear in the
// batch size too, in whole numbers, so that interpolation is exact for every span.
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

// profile returns the one of the device that is wanted of a file that was read.
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

// Linear reports whether the device has no network: a span takes what the costs of its
// operators are, whatever was measured beside it, and groups run one span after another.
func (p *Profile) Linear() bool { return len(p.Network.Layers) == 0 }

// linear returns what a span takes on such a device, in microseconds. It is the
// difference of whole numbers of nanoseconds, so that the spans of a batch take as long
// as the whole of it, wherever it is cut.
func (m *Model) linear(s *models.Span) float64 {
	costs := m.encoder.models[s.Service].costs.At(s.Size, s.SeqLen)
	before, _ := costs.Span(0, s.Start)
	until, _ := costs.Span(0, s.End)
	return (math.Round(until*1e3) - math.Round(before*1e3)) / 1e3
}
