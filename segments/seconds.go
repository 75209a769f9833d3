package segments

import "github.com/overlapd/overlapd/ort"

// seconds makes the second sessions of pieces, for a single thread, while the first ones of
// later pieces are made: ONNX Runtime packs weights again for each, to find that they are
// packed, and does so on one thread.
type seconds struct {
	of     *loaded
	sets   map[int32]int // of packed weights, by the value that is their largest
	wanted chan second
	done   chan error
}

// second is what the second session of a piece is made of, as the first was.
type second struct {
	piece   int
	raw     []byte
	options ort.SessionOptions
}

// maxSeconds is how many sessions may wait to be made.
const maxSeconds = 1

// startSeconds begins to make second sessions of m. Until end returns they belong to it.
func startSeconds(m *loaded) *seconds {
	s := &seconds{m, map[int32]int{}, make(chan second, maxSeconds), make(chan error, 1)}
	go func() {
		s.done <- kindly(func() (err error) {
			for next := range s.wanted {
				if err != nil {
					continue // it is the error that counts
				}
				next.options.OneThread = true
				var one *ort.Session
				if one, err = m.env.NewSession(next.raw, next.options); err != nil {
					err = m.refused(next.piece, err)
					continue
				}
				m.oneThread = append(m.oneThread, one)
				m.tidy(next.piece)
			}
			return err
		})
	}()
	return s
}

// end waits until all that were wanted are made, and returns why one is not.
func (s *seconds) end() error {
	close(s.wanted)
	return <-s.done
}

// set returns in which set of packed weights the sessions of piece p share theirs: one set for
// each weight, and mostly another one than that of the piece before, since ONNX Runtime fills
// a set by one session at a time.
func (s *seconds) set(p int) int {
	m := s.of
	largest, bytes := int32(-1), int64(-1)
	for _, id := range m.cut.pieces[p].weights {
		if v := m.weights.values[id]; v != nil && m.cut.inits[id].Bytes > bytes {
			largest, bytes = id, m.cut.inits[id].Bytes
		}
	}
	if largest < 0 {
		return 1
	}
	if s.sets[largest] == 0 {
		s.sets[largest] = len(s.sets)%ort.PackedSets + 1
	}
	return s.sets[largest]
}
