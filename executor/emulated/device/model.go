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

// Model is a device that is ready for queries. It owns its working memory, so it is not safe for
// concurrent use.
type Model struct {
	profile  *Profile
	features predictor.Features
	encoder  *encoder
	// network is nil for a linear device.
	network *predictor.Network
	infos   []ModelInfo
	spans   [MaxSpans]models.Span
	part    [MaxSpans]models.Span
	bases   [1 << MaxSpans]float64
	// known caches the latencies of groups, and alone the results of OperatorTimes.
	known map[key]float64
	alone map[batchOf][]int64

	// share is the fraction of the device that this Model represents, or 0 for all of it.
	// stretched caches, for each batch in a share, the prefix sums of what [Model.stretch] adds.
	share     float64
	stretched map[batchOf][]float64
}

// batchOf identifies the batches of one shape of a model, given by its index, in a number of units,
// 0 for all.
type batchOf struct{ model, size, seqLen, share int }

// ModelInfo describes a model that a device knows.
type ModelInfo struct {
	Name      string `json:"name"`
	Operators int    `json:"operators"`
	// Sizes are the measured batch sizes, ascending. Other sizes are interpolated.
	Sizes []int `json:"sizes"`
	// SeqLens are the measured sequence lengths, ascending, or [0] for a model without any.
	SeqLens []int `json:"seq_lens"`
	// Ladder is set if batch sizes off the ladder cost extra; see [models.OnLadder].
	Ladder bool `json:"ladder,omitempty"`

	// TargetMillis is the QoS target intended for the model, or 0 if none is known.
	TargetMillis float64 `json:"target_ms,omitempty"`
}

// NewModel returns the model of a profile, or the error of its Validate. The profile must not
// change while the model is in use.
func NewModel(p *Profile) (*Model, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	m := &Model{profile: p, features: p.features(), encoder: NewEncoder(p.Network.Models), known: make(map[key]float64, memoryGroups), alone: map[batchOf][]int64{}, stretched: map[batchOf][]float64{}}
	m.infos = p.Models()
	if p.Linear() {
		return m, nil
	}
	var err error
	m.network, err = predictor.NewNetwork(p.Network.Layers)
	return m, err
}

// Models returns the models of a valid profile in the order of their indices.
func (p *Profile) Models() []ModelInfo {
	var infos []ModelInfo
	for i := range p.Network.Models {
		f := &p.Network.Models[i]
		costs := predictor.NewCostGrid(f.Costs)
		infos = append(infos, ModelInfo{Name: f.Name, Operators: f.Operators, Sizes: costs.Sizes, SeqLens: costs.SeqLens, Ladder: p.ChangeMillis > 0, TargetMillis: p.Targets[f.Name]})
	}
	return infos
}

// Linear reports whether the device is linear; see [Profile.Linear].
func (m *Model) Linear() bool { return m.network == nil }

// Device returns the name of the device, or "" if it is unknown.
func (m *Model) Device() string { return m.profile.Device }

// Models returns the models that the device knows, in the order of their indices. The caller must
// not modify the result.
func (m *Model) Models() []ModelInfo { return m.infos }

// Index returns the index of a model, or -1 if the device does not know it.
func (m *Model) Index(name string) int {
	return slices.IndexFunc(m.infos, func(i ModelInfo) bool { return i.Name == name })
}

// Units returns into how many parts the device is divided, at least 1.
func (m *Model) Units() int { return max(m.profile.Units, 1) }

// Covers reports whether a group is within the range of the measurements: its models are known and
// different, its operators exist, and it has no more spans, no larger batches and no longer
// sequences than were measured.
func (m *Model) Covers(g models.Group) bool { return m.features.Covers(g) }

// Latency returns the median latency of a group. A group that the model does not cover, or any
// group in a share ([Model.InShare]), runs its spans one after another. The order of the spans
// has no effect. Latency does not allocate.
func (m *Model) Latency(g models.Group) time.Duration { return m.run(g, nil) + m.change(g) }

// Sample returns the latency of one random run of a group. It does not allocate.
func (m *Model) Sample(g models.Group, random *rand.Rand) time.Duration {
	return m.run(g, random) + m.change(g)
}

// change returns the extra time of batches whose sizes are off the ladder: the engine prepares for
// such a size when the batch begins, one batch after another.
func (m *Model) change(g models.Group) time.Duration {
	millis := 0.0
	for i := range g.Spans {
		if s := &g.Spans[i]; s.Start == 0 && !models.OnLadder(s.Size) {
			millis += m.profile.ChangeMillis
		}
	}
	return time.Duration(millis * nanosOfMilli)
}

// run returns the latency of a group: the median, or a random run if random is not nil.
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

// maxMicros limits the latency of a group.
const maxMicros = float64(predictor.MaxTime) / 1e3

// duration converts microseconds and rounds to nanoseconds. A run takes at least one.
func duration(micros float64) time.Duration {
	return time.Duration(max(math.Round(min(micros, maxMicros)*1e3), 1))
}

// micros returns the median latency of a group in microseconds.
func (m *Model) micros(g models.Group) float64 {
	if len(g.Spans) == 1 {
		return m.whole(g) + m.stretch(&g.Spans[0])
	}
	return m.whole(g)
}

// whole returns the same for a group that has the whole device, from the cache if possible.
func (m *Model) whole(g models.Group) float64 {
	if m.Linear() && len(g.Spans) == 1 {
		return m.linear(&g.Spans[0])
	}
	spans := m.inModelOrder(g)
	k, packed := pack(spans)
	if packed {
		if micros, found := m.known[k]; found {
			return micros
		}
	}
	micros := m.most(spans)
	if packed {
		// Clearing is simpler than evicting, and a simulation soon fills the cache again.
		if len(m.known) == memoryGroups {
			clear(m.known)
		}
		m.known[k] = micros
	}
	return micros
}

// inModelOrder copies the spans of a group into working memory, in the order of their models.
func (m *Model) inModelOrder(g models.Group) []models.Span {
	spans := m.spans[:len(g.Spans)]
	order := predictor.ModelOrder(g.Spans)
	for i := range spans {
		spans[i] = g.Spans[order[i]]
	}
	return spans
}

// Unheld returns, in microseconds, the network's output for a group that the model covers, without
// raising it to the latencies of the group's parts.
func (m *Model) Unheld(g models.Group) float64 {
	spans := m.inModelOrder(g)
	base := m.encoder.Encode(models.Group{Spans: spans}, m.network.Row(0))
	return base * math.Exp(bounded(float64(m.network.Run(1)[0])))
}

// most returns the greatest latency of any subset of a group's spans. The network does not
// guarantee that a group takes at least as long as each of its parts; taking the maximum does.
func (m *Model) most(spans []models.Span) float64 {
	slowest := 0.0
	for set := 1; set < 1<<len(spans); {
		set = m.fill(spans, set, &slowest)
	}
	return slowest
}

// fill evaluates a batch of subsets, beginning with set, and returns the next one.
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

// maxExponent keeps exp finite. The latency of a real group differs from its base by far less than
// this factor.
const maxExponent = 20

// bounded limits an output of the network, and maps NaN to the longest time.
func bounded(out float64) float64 {
	if math.IsNaN(out) {
		return maxExponent
	}
	return min(max(out, -maxExponent), maxExponent)
}

// pick returns the spans whose bits are in set.
func (m *Model) pick(spans []models.Span, set int) []models.Span {
	part := m.part[:0]
	for ; set != 0; set &= set - 1 {
		part = append(part, spans[bits.TrailingZeros(uint(set))])
	}
	return part
}

const (
	// memoryGroups is the number of groups in the cache before it is cleared.
	memoryGroups = 1 << 13

	// memorySpans is the greatest number of spans of a group in the cache.
	memorySpans = 4
)

// key encodes the spans of a group.
type key [2 * memorySpans]uint64

// pack returns the key of spans, or false if there are too many. The limits of package predictor
// ensure that the numbers fit their bits. A key is never zero, because no span is empty.
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
