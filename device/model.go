package device

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// Model is a device ready to be asked. It owns the memory that it works in and
// so is not safe for concurrent use.
type Model struct {
	profile  *Profile
	features predictor.Features
	encoder  *encoder
	network  *predictor.Network // nil if the device is linear
	infos    []ModelInfo
	spans    [MaxSpans]models.Span
	part     [MaxSpans]models.Span
	bases    [1 << MaxSpans]float64
	known    map[key]float64
	alone    map[batchOf][]int64

	// share is the part of the device that this is, 0 for the whole. stretched has for each
	// batch that was asked about the sums of what [Model.stretch] adds.
	share     float64
	stretched map[batchOf][]float64
}

// batchOf is the batches of one shape of a model, by its position.
type batchOf struct{ model, size, seqLen int }

// ModelInfo is what a device knows of a model.
type ModelInfo struct {
	Name      string `json:"name"`
	Operators int    `json:"operators"`
	Sizes     []int  `json:"sizes"`            // batch sizes that were measured, ascending; those between are interpolated
	SeqLens   []int  `json:"seq_lens"`         // sequence lengths, likewise; [0] if it has none
	Ladder    bool   `json:"ladder,omitempty"` // batches of sizes off the ladder cost a change

	// TargetMillis is the QoS target that the model is meant to have, 0 if none is known.
	TargetMillis float64 `json:"target_ms,omitempty"`
}

// NewModel returns the model of a profile, or the error of its Validate. The
// profile must not change while the model is in use.
func NewModel(p *Profile) (*Model, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	m := &Model{profile: p, features: p.features(), encoder: NewEncoder(p.Network.Models), known: make(map[key]float64, memoryGroups), alone: map[batchOf][]int64{}}
	m.infos = p.Models()
	if p.Linear() {
		return m, nil
	}
	var err error
	m.network, err = predictor.NewNetwork(p.Network.Layers)
	return m, err
}

// Models returns the models of a valid profile, by their positions.
func (p *Profile) Models() []ModelInfo {
	var infos []ModelInfo
	for i := range p.Network.Models {
		f := &p.Network.Models[i]
		costs := predictor.NewCostGrid(f.Costs)
		infos = append(infos, ModelInfo{Name: f.Name, Operators: f.Operators, Sizes: costs.Sizes, SeqLens: costs.SeqLens, Ladder: p.ChangeMillis > 0, TargetMillis: p.Targets[f.Name]})
	}
	return infos
}

// Linear is [Profile.Linear].
func (m *Model) Linear() bool { return m.network == nil }

// Device returns the device in words, "" if unknown.
func (m *Model) Device() string { return m.profile.Device }

// Models returns the models that the device knows, by their positions. The
// caller must not change them.
func (m *Model) Models() []ModelInfo { return m.infos }

// Index returns the position of a model, or -1.
func (m *Model) Index(name string) int {
	return slices.IndexFunc(m.infos, func(i ModelInfo) bool { return i.Name == name })
}

// Covers reports whether the device knows how long a group takes: its spans
// name by position different models of the profile, with operators that they
// have, no larger batches, no longer sequences and no more spans than were
// measured.
func (m *Model) Covers(g models.Group) bool { return m.features.Covers(g) }

// Latency returns the middle of the runs of a group. One that the model does
// not cover, of more spans than were measured or with two of one model, runs one
// span after another, as any does in a share ([Model.InShare]). The order of spans changes
// nothing. It does not allocate.
func (m *Model) Latency(g models.Group) time.Duration { return m.run(g, nil) + m.change(g) }

// Sample returns how long one run of a group takes. It does not allocate.
func (m *Model) Sample(g models.Group, random *rand.Rand) time.Duration {
	return m.run(g, random) + m.change(g)
}

// change is what a group takes besides its operators: for batches that begin and have sizes
// that engines are not prepared for, one after another.
func (m *Model) change(g models.Group) time.Duration {
	millis := 0.0
	for i := range g.Spans {
		if once, _ := g.Spans[i].Once(); once.Start == 0 && !models.OnLadder(once.Size) {
			millis += m.profile.ChangeMillis
		}
	}
	return time.Duration(millis * nanosOfMilli)
}

func (m *Model) run(g models.Group, random *rand.Rand) (sum time.Duration) {
	if len(g.Spans) > 1 && (m.share > 0 || !m.Covers(g)) {
		for i := range g.Spans {
			sum += m.run(models.Group{Spans: g.Spans[i : i+1]}, random)
		}
		return sum
	}
	micros := m.micros(g)
	if random != nil {
		micros *= m.profile.Spread.factor(len(g.Spans), micros, random)
	}
	return duration(micros)
}

// maxMicros limits what a group takes.
const maxMicros = float64(predictor.MaxTime) / 1e3

// duration rounds to nanoseconds, of which a run takes at least one.
func duration(micros float64) time.Duration {
	return time.Duration(max(math.Round(min(micros, maxMicros)*1e3), 1))
}

// micros returns the latency in microseconds: it remembers groups that come
// again.
func (m *Model) micros(g models.Group) float64 {
	if m.Linear() && len(g.Spans) == 1 {
		return m.linear(&g.Spans[0]) + m.stretch(&g.Spans[0])
	}
	spans := m.inModelOrder(g)
	k, packed := pack(spans)
	if packed {
		if micros, found := m.known[k]; found {
			return micros
		}
	}
	micros := m.most(spans)
	if len(spans) == 1 {
		micros += m.stretch(&spans[0])
	}
	if packed {
		if len(m.known) == memoryGroups {
			clear(m.known)
		}
		m.known[k] = micros
	}
	return micros
}

// inModelOrder copies spans into the model's memory, by their models.
func (m *Model) inModelOrder(g models.Group) []models.Span {
	spans := m.spans[:len(g.Spans)]
	order := predictor.ModelOrder(g.Spans)
	for i := range spans {
		spans[i] = g.Spans[order[i]]
	}
	return spans
}

// Unheld returns in microseconds the output of the network for a whole group that
// the model covers, whatever it is for parts of the group.
func (m *Model) Unheld(g models.Group) float64 {
	spans := m.inModelOrder(g)
	base := m.encoder.Encode(models.Group{Spans: spans}, m.network.Row(0))
	return base * math.Exp(bounded(float64(m.network.Run(1)[0])))
}

// most returns the latency of the slowest part of a group, by spans. A network
// learns of each batch by itself what it does beside others; that no batch
// makes others faster is left to this.
func (m *Model) most(spans []models.Span) float64 {
	slowest := 0.0
	for set := 1; set < 1<<len(spans); {
		set = m.fill(spans, set, &slowest)
	}
	return slowest
}

// fill asks the network about as many parts as it takes at a time, from set
// on, and returns the first that is left.
func (m *Model) fill(spans []models.Span, set int, slowest *float64) (next int) {
	rows := min(1<<len(spans)-set, predictor.MaxRows)
	for r := range rows {
		m.bases[r] = m.encoder.Encode(models.Group{Spans: m.pick(spans, set+r)}, m.network.Row(r))
	}
	for r, out := range m.network.Run(rows) {
		*slowest = max(*slowest, m.bases[r]*math.Exp(bounded(float64(out))))
	}
	return set + rows
}

// maxExponent keeps exp finite. No group takes longer or shorter than its base
// by anything near that factor.
const maxExponent = 20

// bounded takes what is no number for very much.
func bounded(out float64) float64 {
	if math.IsNaN(out) {
		return maxExponent
	}
	return min(max(out, -maxExponent), maxExponent)
}

func (m *Model) pick(spans []models.Span, set int) []models.Span {
	part := m.part[:0]
	for ; set != 0; set &= set - 1 {
		part = append(part, spans[bits.TrailingZeros(uint(set))])
	}
	return part
}

const (
	// memoryGroups is how many groups a model remembers until it forgets them all.
	memoryGroups = 1 << 13

	// memorySpans is the most spans of a group that is remembered.
	memorySpans = 4
)

// key is the spans of a group.
type key [2 * memorySpans]uint64

// pack returns the key of spans, unless they are too many. The limits of
// predictors keep all numbers in their bits; none of the keys is zero, since
// no span ends where it starts.
func pack(spans []models.Span) (k key, ok bool) {
	if len(spans) > memorySpans {
		return k, false
	}
	for i := range spans {
		s := &spans[i]
		k[2*i] = uint64(s.Service)<<40 | uint64(s.Start)<<20 | uint64(s.End)
		k[2*i+1] = uint64(s.Size)<<32 | uint64(s.SeqLen)
	}
	return k, true
}
