package daemon

import "sync"

// sharedOverview has the scheduler goroutine asked for one overview at a time,
// however many clients want one: each takes it a while in which it decides
// nothing. Who comes while it is asked shares the next one, so nobody is told
// what was before they came.
type sharedOverview struct {
	mu struct {
		sync.Mutex
		next *question
		turn chan struct{} // holds one while the goroutine is asked
	}
}

// question is one overview and those who wait for it.
type question struct {
	done chan struct{} // closed when text and ok are there
	text []byte
	ok   bool
}

// get returns what ask returns, which is called at most once at a time. The
// text is shared: it must not be changed.
func (s *sharedOverview) get(ask func() ([]byte, bool)) ([]byte, bool) {
	s.mu.Lock()
	if q := s.mu.next; q != nil {
		s.mu.Unlock()
		<-q.done
		return q.text, q.ok
	}
	if s.mu.turn == nil {
		s.mu.turn = make(chan struct{}, 1)
	}
	q, turn := &question{done: make(chan struct{})}, s.mu.turn
	s.mu.next = q
	s.mu.Unlock()

	turn <- struct{}{}
	s.mu.Lock()
	s.mu.next = nil // it begins: who comes now shares the one after
	s.mu.Unlock()
	q.text, q.ok = ask()
	<-turn
	close(q.done)
	return q.text, q.ok
}
