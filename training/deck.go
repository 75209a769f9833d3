package training

import "math/rand/v2"

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
	seqLens map[int]*dealer[int] // by batch size
}

func newInputDeck(s *Subject) inputDeck {
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
