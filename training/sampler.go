package training

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// Limits of sampling.
const (
	maxChoices = 256     // batch sizes or sequence lengths of a model
	maxSets    = 1 << 16 // sets of models that are listed

	// DefaultSoloShare is the share of groups of one span that covers what a
	// serving daemon runs alone without taking much from the rest.
	DefaultSoloShare = 0.1
)

// sampling describes the groups that are sampled: of all sets of 2 to Spans subjects,
// which are sorted by name, and the share SoloShare, 0 to 1, of one span.
type sampling struct {
	Subjects  []subject
	Spans     int
	SoloShare float64
	Seed      uint64
}

// sampler yields operator groups such as the scheduler forms while serving
// (Abacus, section 5.4): in each group at least one batch completes, and
// batches that are new start at operator 0. Sets of models, batch sizes and
// sequence lengths are dealt from decks: each comes once before any comes
// again, so that any number of groups covers them evenly. The same sampling
// yields the same groups.
type sampler struct {
	sampling sampling
	random   *rand.Rand
	position int

	// All sets of equal size are of one kind: kinds deals which of sets the next group
	// takes, so that small and large groups are sampled equally often. solos deals the
	// models that run alone.
	kinds deck
	sets  []setDealer
	solos dealer[int]

	// inputs are by model, first of groups of one span, then of others.
	inputs [2][]inputDeck
}

// newSampler returns a sampler at its first group. What cannot be sampled is
// refused with ErrPlan.
func newSampler(s sampling) (*sampler, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	p := &sampler{sampling: s, random: rand.New(rand.NewPCG(s.Seed, 0))}
	for n := 2; n <= min(s.Spans, len(s.Subjects)); n++ {
		p.sets = append(p.sets, newSetDealer(len(s.Subjects), n))
	}
	p.kinds.cards = len(p.sets)
	for i := range s.Subjects {
		p.solos.values = append(p.solos.values, i)
		for kind := range p.inputs {
			p.inputs[kind] = append(p.inputs[kind], newInputDeck(&s.Subjects[i]))
		}
	}
	return p, nil
}

func (s *sampling) check() error {
	if err := checkSubjects(s.Subjects); err != nil {
		return err
	}
	if math.IsNaN(s.SoloShare) || s.SoloShare < 0 || s.SoloShare > 1 {
		return fmt.Errorf("%w: a share of %v groups of one span", ErrPlan, s.SoloShare)
	}
	if s.Spans < 1 || s.Spans > MaxSpans {
		return fmt.Errorf("%w: groups of up to %d spans, not of 1 to %d", ErrPlan, s.Spans, MaxSpans)
	}
	return nil
}

// Next returns the next group. Its spans have no batches; they name subjects
// by position, in rising order.
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

// nextSet returns the models of the next group, and 0 if it is one alone.
func (p *sampler) nextSet() (set []int, kind int) {
	before := math.Floor(float64(p.position) * p.sampling.SoloShare)
	p.position++
	if len(p.sets) == 0 || math.Floor(float64(p.position)*p.sampling.SoloShare) > before {
		return []int{p.solos.deal(p.random)}, 0
	}
	return p.sets[p.kinds.deal(p.random)].deal(p.random), 1
}

// choose returns which n of all are chosen.
func (p *sampler) choose(all, n int) []bool {
	chosen := make([]bool, all)
	for _, i := range p.random.Perm(all)[:n] {
		chosen[i] = true
	}
	return chosen
}

// operators returns a span of a model of n operators. A batch that neither
// starts nor completes here stands in the middle, which a model of two
// operators does not have: it completes then.
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

// deck deals the numbers below cards in random order, each once before any
// comes again.
type deck struct {
	cards int
	left  []int
}

func (d *deck) deal(random *rand.Rand) int {
	if len(d.left) == 0 {
		d.left = random.Perm(d.cards)
	}
	card := d.left[len(d.left)-1]
	d.left = d.left[:len(d.left)-1]
	return card
}

// dealer deals values.
type dealer[T any] struct {
	values []T
	deck   deck
}

func (d *dealer[T]) deal(random *rand.Rand) T {
	d.deck.cards = len(d.values)
	return d.values[d.deck.deal(random)]
}

// inputDeck deals the batches of a subject: batch sizes evenly, and for each
// of them sequence lengths evenly.
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

// setDealer deals sets of models. Where there are too many to list, sets has no values,
// and each is made of so many models from the hand.
type setDealer struct {
	sets dealer[[]int]
	size int
	hand deck
}

// newSetDealer deals all sets of n out of the first all models. Where there
// are too many of them to list, it still deals the models evenly.
func newSetDealer(all, n int) setDealer {
	if binomial(all, n) > maxSets {
		return setDealer{size: n, hand: deck{cards: all}}
	}
	return setDealer{sets: dealer[[]int]{values: combinations(all, n)}}
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
	d.hand.left = append(d.hand.left, twice...)
	slices.Sort(set)
	return set
}

// combinations returns all sets of n out of the first all numbers.
func combinations(all, n int) [][]int {
	var sets [][]int
	set := make([]int, 0, n)
	var add func(first int)
	add = func(first int) {
		if len(set) == n {
			sets = append(sets, slices.Clone(set))
			return
		}
		for i := first; i <= all-(n-len(set)); i++ {
			set = append(set, i)
			add(i + 1)
			set = set[:len(set)-1]
		}
	}
	add(0)
	return sets
}

// binomial returns the number of sets of n out of all, or any number above
// maxSets if it is that.
func binomial(all, n int) int {
	sets := 1
	for i := range min(n, all-n) {
		sets = sets * (all - i) / (i + 1)
		if sets > maxSets {
			break
		}
	}
	return sets
}
