package predictor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/models"
)

// The errors of reading a predictor file and of using it.
var (
	// errFormat is returned when a file is not a predictor file or has another version.
	errFormat = errors.New("not a predictor file")

	// errDamaged is returned when a predictor file is truncated, too large or invalid: for
	// example, it has unknown fields, NaN, or layers that do not fit each other.
	errDamaged = errors.New("damaged predictor file")

	// ErrDevice is returned when a predictor was trained on another device.
	ErrDevice = errors.New("predictor of another device")

	// ErrModels is returned when the models of the services differ from those in training, or
	// fewer than two of them occurred there.
	ErrModels = errors.New("predictor of other models")
)

// Format is the first field of every predictor file.
const Format = "overlapd-predictor/1"

// maxFileBytes limits the size of a predictor file.
const maxFileBytes = 32 << 20

// File is a stored predictor, with everything that serving needs. It was trained on Rows measured
// groups. Test holds its errors on other groups that were held out.
type File struct {
	Format   string    `json:"format"`
	Device   string    `json:"device"`
	Created  time.Time `json:"created"`
	Recipe   string    `json:"recipe"`
	Seed     uint64    `json:"seed"`
	Rows     int       `json:"rows"`
	Features Features  `json:"features"`
	Output   string    `json:"output"`
	Layers   []Layer   `json:"layers"`
	Test     Errors    `json:"test"`
}

// The values of File.Output, which says what the last layer computes.
const (
	// OutputRatio means latency = base * exp(output).
	OutputRatio = "log-ratio"
	// OutputMicros means latency = base * output, where the base may be constant.
	OutputMicros = "scaled"
)

// Layer is a dense layer. The weight of input i for output o is Weights[o*Inputs+i]. All layers
// but the last are followed by a ReLU.
type Layer struct {
	Inputs  int       `json:"inputs"`
	Outputs int       `json:"outputs"`
	Weights []float32 `json:"weights"`
	Bias    []float32 `json:"bias"`
}

// Errors holds the errors of predictions: the mean absolute percentage error (Abacus, equation 1)
// and the quantiles of measured/predicted.
type Errors struct {
	Rows      int       `json:"rows"`
	MAPE      float64   `json:"mape"`
	Quantiles Quantiles `json:"quantiles"`
}

// Quantiles holds quantiles of measured/predicted.
type Quantiles struct {
	P01 float64 `json:"p01"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

var kind = textfile.Kind[File]{
	Format: Format, MaxBytes: maxFileBytes, Foreign: errFormat, Damaged: errDamaged,
	Faults: (*File).faults, Remedy: "overlapd train makes a predictor",
}

// ReadFile reads and validates a predictor file. Its errors name the path and the remedy.
func ReadFile(path string) (*File, error) { return kind.ReadFile(path) }

// Read reads r to its end and validates the predictor. If it is not valid, the error wraps
// [errFormat] or [errDamaged].
func Read(r io.Reader) (*File, error) { return kind.Read(r, "") }

// WriteFile validates the predictor and writes it atomically: readers of path see the old file or
// the complete new one, even after a crash.
func (f *File) WriteFile(path string) error { return kind.WriteFile(path, f) }

// Validate returns an error that wraps [errDamaged] and lists the faults, or nil if the predictor
// can be served.
func (f *File) Validate() error { return kind.Check(f) }

// Identity returns a hash of the predictor, which identifies it in snapshots and logs.
func (f *File) Identity() string {
	data, err := json.Marshal(f)
	if err != nil {
		// JSON cannot encode NaN or infinity. Such a file fails Validate, so it is never served.
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// leastKnown is the number of a host's models that a predictor must know to be useful: a network
// is asked only about groups of several.
const leastKnown = 2

// Served describes a service's model on this device.
type Served struct {
	Service string
	Model   string
	// Hash is "" if unknown.
	Hash      string
	Operators int
}

// Match returns, for each service, the index of its model in the file, or -1 if the file does not
// have it. It returns an error that wraps [ErrDevice] or [ErrModels] and names the difference if
//
//   - the file is for another device,
//   - a model has another hash or other operators, or
//   - the file knows fewer than two of the models.
//
// A model is matched by its hash, or by its name if the file or the service has no hash. If several
// models in the file have the same hash, because several services use one model, Match prefers the
// one with the same name, then one that no earlier service uses.
func (f *File) Match(device string, services []Served) (bind []int, err error) {
	var faults []error
	if f.Device != device {
		had, has := models.DevicesDiffer(f.Device, device)
		faults = append(faults, fmt.Errorf("%w: trained on %q, this is %q", ErrDevice, had, has))
	}
	bind = make([]int, len(services))
	known := map[int]bool{}
	var unknown []string
	for i := range services {
		s := &services[i]
		bind[i] = f.find(s, known)
		if bind[i] < 0 {
			unknown = append(unknown, s.Service)
			continue
		}
		known[bind[i]] = true
		if err := f.Features.Models[bind[i]].fits(s); err != nil {
			faults = append(faults, fmt.Errorf("%w: service %s: %w", ErrModels, s.Service, err))
		}
	}
	if len(known) < leastKnown {
		faults = append(faults, fmt.Errorf("%w: %d of the models served are among those it was trained on, at least %d must be; unknown are those of %q",
			ErrModels, len(known), leastKnown, unknown))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return bind, nil
}

// find returns the index of a service's model, or -1. known holds the indices that other services
// use. A model with the same name but another hash is a match too, so that fits can report the
// difference.
func (f *File) find(s *Served, known map[int]bool) int {
	byHash, byName := -1, -1
	for i := range f.Features.Models {
		m := &f.Features.Models[i]
		same := m.Hash != "" && m.Hash == s.Hash
		switch {
		case same && m.Name == s.Model:
			return i
		case same && (byHash < 0 || known[byHash]):
			byHash = i
		case m.Name == s.Model:
			byName = i
		}
	}
	if byHash >= 0 {
		return byHash
	}
	return byName
}

// fits returns an error if the model of a service differs from the one in training.
func (m *FeatureModel) fits(s *Served) error {
	var faults []error
	if m.Hash != "" && s.Hash != "" && m.Hash != s.Hash {
		had, has := models.ModelsDiffer(m.Hash, s.Hash)
		faults = append(faults, fmt.Errorf("model %s was trained with %s, it has %s", m.Name, had, has))
	}
	if m.Operators != s.Operators {
		faults = append(faults, fmt.Errorf("model %s was trained with %d operators, it has %d", m.Name, m.Operators, s.Operators))
	}
	return errors.Join(faults...)
}

// Limits of a predictor file.
const (
	maxLayers = 16
	// maxWidth limits the inputs and the outputs of a layer.
	maxWidth = 4096
	// maxName limits the bytes of the device and of the recipe.
	maxName = 1024
	// maxRatio limits a ratio of measured to predicted.
	maxRatio = 1e6
)

func (f *File) faults() (faults []error) {
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	err := f.Features.Validate()
	fault(err != nil, "%w", err)
	fault(f.Format != Format, "its format is %.40q, want %q", f.Format, Format)
	fault(f.Output != OutputRatio && f.Output != OutputMicros, "unknown output %.40q", f.Output)
	fault(f.Rows < 1, "trained on %d rows", f.Rows)
	fault(max(len(f.Device), len(f.Recipe)) > maxName, "a device of %d bytes and a recipe of %d; the limit is %d", len(f.Device), len(f.Recipe), maxName)
	faults = append(faults, layerFaults(f.Layers)...)
	if width := f.Features.Width(); len(f.Layers) > 0 {
		fault(f.Layers[0].Inputs != width, "the first layer has %d inputs, its features %d", f.Layers[0].Inputs, width)
	}
	e, q := &f.Test, &f.Test.Quantiles
	fault(e.Rows < 0, "tested on %d rows", e.Rows)
	fault(!(e.MAPE >= 0 && finite(e.MAPE)), "a mean absolute percentage error of %v", e.MAPE)
	fault(!(0 < q.P01 && q.P01 <= q.P50 && q.P50 <= q.P90 && q.P90 <= q.P95 && q.P95 <= q.P99 && q.P99 <= maxRatio),
		"quantiles of measured/predicted are not positive and in order: %+v", *q)
	return faults
}

// layerFaults returns what is wrong with layers. It runs before anything is allocated by their
// declared sizes, which must match the weights that are present.
func layerFaults(layers []Layer) (faults []error) {
	if len(layers) == 0 || len(layers) > maxLayers {
		return []error{fmt.Errorf("%d layers; the limit is %d", len(layers), maxLayers)}
	}
	for i := range layers {
		l := &layers[i]
		if err := l.fault(); err != nil {
			faults = append(faults, fmt.Errorf("layer %d: %w", i, err))
		}
		if i > 0 && l.Inputs != layers[i-1].Outputs {
			faults = append(faults, fmt.Errorf("layer %d has %d inputs, the one before %d outputs", i, l.Inputs, layers[i-1].Outputs))
		}
	}
	if l := layers[len(layers)-1]; l.Outputs != 1 {
		faults = append(faults, fmt.Errorf("the last layer has %d outputs, want 1", l.Outputs))
	}
	return faults
}

func (l *Layer) fault() error {
	switch {
	case l.Inputs < 1 || l.Inputs > maxWidth || l.Outputs < 1 || l.Outputs > maxWidth:
		return fmt.Errorf("%d inputs and %d outputs; the limit is %d", l.Inputs, l.Outputs, maxWidth)
	case len(l.Weights) != l.Inputs*l.Outputs:
		return fmt.Errorf("%d weights for %d inputs and %d outputs", len(l.Weights), l.Inputs, l.Outputs)
	case len(l.Bias) != l.Outputs:
		return fmt.Errorf("a bias of %d for %d outputs", len(l.Bias), l.Outputs)
	}
	infinite := func(v float32) bool { return !finite(float64(v)) }
	if i := slices.IndexFunc(l.Weights, infinite); i >= 0 {
		return fmt.Errorf("weight %d is %v", i, l.Weights[i])
	}
	if i := slices.IndexFunc(l.Bias, infinite); i >= 0 {
		return fmt.Errorf("bias %d is %v", i, l.Bias[i])
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

const (
	// maxExponent keeps exp finite. The latency of a real group differs from its base by far
	// less than this factor.
	maxExponent = 20

	leastMicros = minNanos / 1e3
	mostMicros  = maxNanos / 1e3
)

// model is a predictor file that is ready to serve. It owns its working memory, so it is not safe
// for concurrent use.
type model struct {
	encoder *encoder
	network *Network
	output  string
	// bases are in microseconds.
	bases [MaxRows]float64
}

// newModel returns the model of a file, or the error of its Validate. The file must not change
// while the model is in use.
func newModel(f *File) (*model, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	network, err := NewNetwork(f.Layers)
	if err != nil {
		return nil, err
	}
	return &model{encoder: newEncoder(&f.Features), network: network, output: f.Output}, nil
}

// Predict returns the latencies, in microseconds, of groups that the features cover, or the error
// of Validate. It prepares the network for each call; a [Predictor] does so only once.
func (f *File) Predict(groups []models.Group) (micros []float64, err error) {
	m, err := newModel(f)
	if err != nil {
		return nil, err
	}
	micros = make([]float64, len(groups))
	m.predict(groups, micros)
	return micros, nil
}

// predict sets micros[i] to the latency of groups[i] in microseconds. The model must cover the
// groups. The result is finite, positive and at most MaxTime. predict evaluates MaxRows groups at
// a time and does not allocate.
func (m *model) predict(groups []models.Group, micros []float64) {
	for len(groups) > 0 {
		n := min(len(groups), MaxRows)
		for i, g := range groups[:n] {
			m.bases[i] = m.encoder.encode(g, m.network.Row(i))
		}
		for i, out := range m.network.Run(n) {
			micros[i] = latency(m.output, m.bases[i], float64(out))
		}
		groups, micros = groups[n:], micros[n:]
	}
}

// latency converts an output of the network to microseconds. It maps NaN to the longest time, so
// that the scheduler does not form the group.
func latency(output string, base, out float64) float64 {
	micros := base * out
	if output == OutputRatio {
		micros = base * math.Exp(min(max(out, -maxExponent), maxExponent))
	}
	if math.IsNaN(micros) {
		return mostMicros
	}
	return min(max(micros, leastMicros), mostMicros)
}
