package training

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/combin"

	"github.com/overlapd/overlapd/models"
)

// Limits of sampling.
const (
	// maxSets limits the sets of models that are enumerated.
	maxSets = 1 << 16

	// defaultSoloShare is the fraction of sampled groups that have one span. It is enough to
	// cover what a serving daemon runs alone, and leaves most groups for overlap.
	defaultSoloShare = 0.1
)

// sampling describes the groups to sample. They cover all sets of 2 to Spans subjects, and a
// fraction SoloShare between 0 and 1 of them has one span. Subjects are sorted by name.
type sampling struct {
	Subjects  []subject
	Spans     int
	SoloShare float64
	Seed      uint64
}

// sampler generates operator groups such as the scheduler forms while serving (Abacus, section
// 5.4): in each group at least one batch completes, and new batches start at operator 0. Sets
// of models, batch sizes and sequence lengths are drawn without replacement until all have
// occurred, so that any number of groups covers them evenly. The same sampling gives the same
// groups.
type sampler struct {
	sampling sampling
	random   *rand.Rand
	position int

	// kinds has an element for each size of group, so that small and large groups are sampled
	// equally often. solos deals the models that run alone.
	kinds dealer[*setDealer]
	solos dealer[int]

	// inputs holds decks by model, for groups of one span and for larger groups.
	inputs [2][]inputDeck
}

func newSampler(s sampling) *sampler {
	p := &sampler{sampling: s, random: rand.New(rand.NewPCG(s.Seed, 0))}
	for n := 2; n <= min(s.Spans, len(s.Subjects)); n++ {
		p.kinds.values = append(p.kinds.values, newSetDealer(len(s.Subjects), n))
	}
	for i := range s.Subjects {
		p.solos.values = append(p.solos.values, i)
		for kind := range p.inputs {
			p.inputs[kind] = append(p.inputs[kind], newInputDeck(&s.Subjects[i]))
		}
	}
	return p
}

// Next returns the next group. Its spans have no batch IDs, and refer to subjects by index, in
// ascending order.
func (p *sampler) Next() models.Group {
	set, kind := p.nextSet()
	completes := p.choose(len(set), 1+p.random.IntN(len(set)))
	starts := p.choose(len(set), p.random.IntN(len(set)+1))
	spans := make([]models.Span, len(set))
	for i, model := range set {
		s := &spans[i]
		s.Service = models.ServiceID(model)
		s.Start, s.End = p.operators(p.sampling.Subjects[model].Model.Operators, completes[i], starts[i])
		s.Size, s.SeqLen = p.inputs[kind][model].deal(p.random)
	}
	return models.Group{Spans: spans}
}

// nextSet returns the models of the next group. kind is 0 for a group of one span and 1 otherwise.
func (p *sampler) nextSet() (set []int, kind int) {
	// A group of one span is due whenever the total of SoloShare passes a whole number, which
	// spreads these groups evenly.
	before := math.Floor(float64(p.position) * p.sampling.SoloShare)
	p.position++
	if len(p.kinds.values) == 0 || math.Floor(float64(p.position)*p.sampling.SoloShare) > before {
		return []int{p.solos.deal(p.random)}, 0
	}
	return p.kinds.deal(p.random).deal(p.random), 1
}

// choose selects n of all elements at random.
func (p *sampler) choose(all, n int) []bool {
	chosen := make([]bool, all)
	for _, i := range p.random.Perm(all)[:n] {
		chosen[i] = true
	}
	return chosen
}

// operators returns a random span of a model with n operators. A batch that neither starts nor
// completes in the group gets a span in the middle. A model of two operators has none, so its
// batch completes.
func (p *sampler) operators(n int, completes, starts bool) (start, end int) {
	start, end = 0, n
	if !starts && n > 1 {
		last := n - 1
		if !completes && n > 2 {
			last--
		}
		start = 1 + p.random.IntN(last)
	}
	if !completes && n-start > 1 {
		end = start + 1 + p.random.IntN(n-start-1)
	}
	return start, end
}

// dealer draws values in random order, without replacement until all have been drawn. left
// holds the indices of the remaining ones.
type dealer[T any] struct {
	values []T
	left   []int
}

func (d *dealer[T]) deal(random *rand.Rand) T {
	if len(d.left) == 0 {
		d.left = random.Perm(len(d.values))
	}
	last := len(d.left) - 1
	card := d.left[last]
	d.left = d.left[:last]
	return d.values[card]
}

// inputDeck draws the inputs of a subject: batch sizes evenly and, for each of them, sequence
// lengths evenly.
type inputDeck struct {
	sizes   dealer[int]
	seqLens map[int]*dealer[int]
}

func newInputDeck(s *subject) inputDeck {
	d := inputDeck{sizes: dealer[int]{values: s.Sizes}, seqLens: map[int]*dealer[int]{}}
	for _, size := range s.Sizes {
		d.seqLens[size] = &dealer[int]{values: s.seqLens()}
	}
	return d
}

func (d *inputDeck) deal(random *rand.Rand) (size, seqLen int) {
	size = d.sizes.deal(random)
	return size, d.seqLens[size].deal(random)
}

// setDealer draws sets of models. If there are too many to enumerate, sets has no values, and
// each set is drawn as size models from hand.
type setDealer struct {
	sets dealer[[]int]
	size int
	hand dealer[int]
}

// newSetDealer returns a dealer for all sets of n out of the first all models. If there are too
// many sets to enumerate, it still draws the models evenly.
func newSetDealer(all, n int) *setDealer {
	d := &setDealer{size: n}
	if combin.GeneralizedBinomial(float64(all), float64(n)) <= maxSets {
		d.sets.values = combin.Combinations(all, n)
		return d
	}
	for model := range all {
		d.hand.values = append(d.hand.values, model)
	}
	return d
}

func (d *setDealer) deal(random *rand.Rand) []int {
	if len(d.sets.values) > 0 {
		return d.sets.deal(random)
	}
	var set, twice []int
	for len(set) < d.size {
		if model := d.hand.deal(random); slices.Contains(set, model) {
			twice = append(twice, model)
		} else {
			set = append(set, model)
		}
	}
	// A model that was drawn twice goes back, so that it is not missing from the next sets.
	d.hand.left = append(d.hand.left, twice...)
	slices.Sort(set)
	return set
}
