package device

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// Model is a device ready to be asked. It owns the memory that it works in and
// so is not safe for concurrent use.
type Model struct {
	profile *Profile
	network *predictor.Model
	infos   []ModelInfo
	index   map[string]int
	groups  [predictor.MaxSpans + 1]models.Group
	micros  [predictor.MaxSpans + 1]float64
}

// ModelInfo is what a device knows of a model.
type ModelInfo struct {
	Name      string
	Operators int
	Sizes     []int // batch sizes that were measured, ascending; those between are interpolated
	SeqLens   []int // sequence lengths, likewise; [0] if it has none
}

// NewModel returns the model of a profile, or the error of its Validate. The
// profile must not change while the model is in use.
func NewModel(p *Profile) (*Model, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	network, err := predictor.NewModel(&p.Network)
	if err != nil {
		return nil, err
	}
	m := &Model{profile: p, network: network, index: map[string]int{}}
	for i := range p.Network.Features.Models {
		f := &p.Network.Features.Models[i]
		m.infos = append(m.infos, newModelInfo(f))
		m.index[f.Name] = i
	}
	return m, nil
}

func newModelInfo(f *predictor.FeatureModel) ModelInfo {
	info := ModelInfo{Name: f.Name, Operators: f.Operators}
	for _, c := range f.Costs {
		info.Sizes = append(info.Sizes, c.Size)
		info.SeqLens = append(info.SeqLens, c.SeqLen)
	}
	slices.Sort(info.Sizes)
	slices.Sort(info.SeqLens)
	info.Sizes, info.SeqLens = slices.Compact(info.Sizes), slices.Compact(info.SeqLens)
	return info
}

// Device returns the device in words, "" if unknown.
func (m *Model) Device() string { return m.profile.Device }

// Models returns the models that the device knows, by their positions. The
// caller must not change them.
func (m *Model) Models() []ModelInfo { return m.infos }

// Index returns the position of a model, or -1.
func (m *Model) Index(name string) int {
	if i, known := m.index[name]; known {
		return i
	}
	return -1
}

// Covers reports whether the device knows how long a group takes: its spans
// name by position different models of the profile, with operators that they
// have, no larger batches, no longer sequences and no more spans than were
// measured.
func (m *Model) Covers(g models.Group) bool { return m.network.Covers(g) }

// Latency returns the middle of the runs of a group that the model covers. It
// does not allocate.
func (m *Model) Latency(g models.Group) time.Duration {
	return duration(m.latency(g))
}

// Sample returns one run of a group that the model covers. It does not
// allocate.
func (m *Model) Sample(g models.Group, random *rand.Rand) time.Duration {
	micros := m.latency(g)
	return duration(micros * m.profile.Spread.factor(len(g.Spans), micros, random))
}

// duration rounds to nanoseconds, of which a run takes at least one.
func duration(micros float64) time.Duration {
	return time.Duration(max(math.Round(micros*1e3), 1))
}

// latency returns microseconds.
func (m *Model) latency(g models.Group) float64 {
	m.groups[0] = g
	n := 1
	if len(g.Spans) > 1 {
		for i := range g.Spans {
			m.groups[n].Spans = g.Spans[i : i+1]
			n++
		}
	}
	m.network.Predict(m.groups[:n], m.micros[:n])
	return slices.Max(m.micros[:n])
}
