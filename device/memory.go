package device

import "github.com/overlapd/overlapd/models"

const (
	// memoryGroups is how many groups a model remembers, one for each place
	// that groups fall on: the latest.
	memoryGroups = 1 << 13

	// memorySpans is the most spans of a group that is remembered.
	memorySpans = 4
)

// key is the spans of a group.
type key [2 * memorySpans]uint64

// memory keeps the latencies of groups that were asked for lately.
type memory struct {
	places []place
}

type place struct {
	key    key
	micros float64
}

func (m *memory) init() { m.places = make([]place, memoryGroups) }

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

func (k *key) place() int {
	h := uint64(1469598103934665603)
	for _, v := range k {
		h = (h ^ v) * 0x9E3779B97F4A7C15
		h ^= h >> 29
	}
	return int(h % memoryGroups)
}

func (m *memory) get(k *key) (micros float64, found bool) {
	p := &m.places[k.place()]
	return p.micros, p.key == *k
}

func (m *memory) put(k *key, micros float64) {
	m.places[k.place()] = place{*k, micros}
}
