package segments

import "github.com/overlapd/overlapd/ort"

// seconds creates the second session of each piece, for a single thread, while the first
// sessions of later pieces are being created. ONNX Runtime packs the weights again for each
// session, on one thread, before it finds that they are already packed; creating the
// sessions in parallel hides that time.
type seconds struct {
	of *loaded

	// sets maps the largest weight of a piece to a set of packed weights.
	sets map[int32]int

	wanted chan second
	done   chan error
}

// second holds what the first session of a piece was created from.
type second struct {
	piece   int
	raw     []byte
	options ort.SessionOptions
}

// maxSeconds is how many sessions may be queued.
const maxSeconds = 1

// startSeconds starts to create the second sessions of m in the background. Until end
// returns, m.oneThread belongs to that goroutine.
func startSeconds(m *loaded) *seconds {
	s := &seconds{m, map[int32]int{}, make(chan second, maxSeconds), make(chan error, 1)}
	go func() {
		s.done <- kindly(func() (err error) {
			for next := range s.wanted {
				if err != nil { // the first error is returned; drain the queue
					continue
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

// end waits until all queued sessions are created, and returns the first error.
func (s *seconds) end() error {
	close(s.wanted)
	return <-s.done
}

// set returns the number of the set in which the sessions of piece p share packed weights.
// Pieces with the same largest weight use the same set. Consecutive pieces mostly use
// different sets, because ONNX Runtime lets only one session at a time add to a set.
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
