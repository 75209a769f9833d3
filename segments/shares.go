package segments

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/ort"
)

// maxPoolThreads limits the threads of the pools for all shares of a model together. Each
// session has a pool of its own, so a finely cut model has many of them. A share whose pools
// would exceed the limit runs on the next smaller one.
const maxPoolThreads = 1024

// shares holds further sets of sessions of a model on the CPU, which run spans on a part of
// the units. They use the same weights as the first set, packed and unpacked.
//
// ONNX Runtime runs a session with one thread on the thread that calls it, so that any
// number of spans use the set for one unit at the same time. A larger share k has pools of k
// threads. A set of these runs one span at a time, so as many are made as can run at once.
type shares struct {
	// units is how many spans may run at once, or 0 if only one may.
	units int

	// one is the set for a single unit, nil if there is only one.
	one []*ort.Session

	// ladder holds the larger shares that have pools, in ascending order.
	ladder []int

	// recipes describes how to make more sessions of each piece. It is empty if there is
	// only the share of one unit.
	recipes []recipe

	// idle holds the sets of each larger share that no span uses, and made how many there
	// are. freed, whose lock guards both, announces that a set has become idle.
	idle  map[int][][]*ort.Session
	made  map[int]int
	freed *sync.Cond

	// bytes is the memory of the arena that the larger shares take.
	bytes int64

	// anywhere is the CPUs that the process may use, though the thread that makes a set may be
	// bound to some of them.
	anywhere unix.CPUSet
}

// recipe is what the first session of a piece was created from, with the size of the
// piece's weights.
type recipe struct {
	raw     []byte
	options ort.SessionOptions
	weights int64
}

// plan chooses the shares that have pools, for a model of the given number of pieces.
func (s *shares) plan(units, pieces int) {
	s.units, s.ladder, s.idle, s.made = units, nil, map[int][][]*ort.Session{}, map[int]int{}
	_ = unix.SchedGetaffinity(0, &s.anywhere) // none is an empty set, to which no thread can be bound
	threads := 0
	for k := 2; k < s.units; k *= 2 {
		if threads += s.units / k * pieces * (k - 1); threads <= maxPoolThreads {
			s.ladder = append(s.ladder, k)
		}
	}
}

// of returns the share that runs spans on the given number of units: 0 for all of them, 1,
// or a number on the ladder.
func (s *shares) of(share int) int {
	if share <= 0 || share >= s.units {
		return 0
	}
	at := 1
	for _, k := range s.ladder {
		if k <= share {
			at = k
		}
	}
	return at
}

// rungs returns 0, for all units, and the shares to prepare for: the powers of two below
// the units.
func (s *shares) rungs() []int {
	list := []int{0}
	for k := 1; k < s.units; k *= 2 {
		list = append(list, k)
	}
	return list
}

// take returns the sessions that run a span of m on a share of the units, until give, and
// on how many units they run. It waits if all are in use. If no more can be made, the span
// and later ones get a smaller share. The caller holds the lock of freed.
func (s *shares) take(m *loaded, share int) (set []*ort.Session, k int) {
	for {
		switch k = s.of(share); k {
		case 0:
			return m.sessions, k
		case 1:
			return s.one, k
		}
		if n := len(s.idle[k]); n > 0 {
			set = s.idle[k][n-1]
			s.idle[k] = s.idle[k][:n-1]
			return set, k
		}
		if s.made[k] >= s.units/k {
			s.freed.Wait()
			continue
		}
		set, err := s.makeSet(m, k)
		if err == nil {
			s.made[k]++
			return set, k
		}
		fmt.Fprintf(os.Stderr, "overlapd worker: warning: no pools of %d threads, smaller ones are used: %v\n", k, err)
		s.ladder = slices.DeleteFunc(s.ladder, func(other int) bool { return other == k })
	}
}

// give ends the use of a set that take has returned.
func (s *shares) give(k int, set []*ort.Session) {
	if k > 1 {
		s.idle[k] = append(s.idle[k], set)
		s.freed.Broadcast() // those that wait may wait for other shares
	}
}

// makeSet creates a set of sessions with pools of the given number of threads.
func (s *shares) makeSet(m *loaded, threads int) (set []*ort.Session, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var bound unix.CPUSet
	if unix.SchedGetaffinity(0, &bound) == nil && unix.SchedSetaffinity(0, &s.anywhere) == nil { // the threads of the pools inherit it
		defer func() { _ = unix.SchedSetaffinity(0, &bound) }()
	}
	before := m.env.ThreadBytes()
	defer func() { s.bytes += m.env.ThreadBytes() - before }()
	for p, r := range s.recipes {
		r.options.Threads = threads
		session, err := m.env.NewSession(r.raw, r.options)
		if err != nil {
			return nil, errors.Join(refusal(p, m.model.Operators[p], err), closeAll(set))
		}
		set = append(set, session)
		m.tidy(m.weights.files[0], r.weights)
	}
	return set, nil
}

// close closes the sessions of all sets. No span may use them.
func (s *shares) close() error {
	err := closeAll(s.one)
	for _, sets := range s.idle {
		for _, set := range sets {
			err = errors.Join(err, closeAll(set))
		}
	}
	s.one, s.recipes, s.idle, s.made = nil, nil, nil, nil
	return err
}

func closeAll(sessions []*ort.Session) error {
	var errs []error
	for _, s := range sessions {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// singles creates the sessions for a single thread while the first sessions of later pieces
// are being created. ONNX Runtime packs the weights again for each session, on one thread,
// before it finds that they are already packed; creating the sessions in parallel hides that
// time.
type singles struct {
	of *loaded

	// sets maps the largest weight of a piece to a set of packed weights.
	sets map[int32]int

	wanted chan recipe
	done   chan error
}

// maxSingles is how many sessions may be queued.
const maxSingles = 1

// startSingles starts to create the sessions of m for a single thread in the background.
// Until end returns, m.shares.one belongs to that goroutine.
func startSingles(m *loaded) *singles {
	s := &singles{m, map[int32]int{}, make(chan recipe, maxSingles), make(chan error, 1)}
	go func() {
		s.done <- kindly(func() (err error) {
			piece := 0
			for next := range s.wanted {
				if err != nil { // the first error is returned; drain the queue
					continue
				}
				next.options.Threads = 1
				var one *ort.Session
				if one, err = m.env.NewSession(next.raw, next.options); err != nil {
					err = m.refused(piece, err)
					continue
				}
				m.shares.one = append(m.shares.one, one)
				m.tidy(m.cut.file, next.weights)
				piece++
			}
			return err
		})
	}()
	return s
}

// end waits until all queued sessions are created, and returns the first error.
func (s *singles) end() error {
	close(s.wanted)
	return <-s.done
}

// set returns the number of the set in which the sessions of piece p share packed weights.
// Pieces with the same largest weight use the same set. Consecutive pieces mostly use
// different sets, because ONNX Runtime lets only one session at a time add to a set.
func (s *singles) set(p int) int {
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
