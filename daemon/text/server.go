// Package text answers requests of texts. It makes one query of each text, sends it like every other
// query (package query), and makes embeddings or scores of the outputs.
//
// The queries of a request have one arrival and one deadline. They are answered together or
// not at all: the first that fails cancels the others, and its error is that of the request.
package text

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/daemon/query"
)

const (
	// tokenizerShare divides the number of processors: so many long texts are tokenized at a time, and
	// as many short ones.
	tokenizerShare = 2

	// longBytes is the size of a long text, which may take more than a millisecond if it cannot be
	// tokenized in portions.
	longBytes = 8 << 10

	// broadBytes is the size of the texts of a request from which on all processors are used
	// while they are tokenized, and a goroutine each.
	broadBytes = 32 << 10

	// wordBytes is the size of the text of a token. Of a text that is truncated, no more counts than
	// that of the tokens that are kept.
	wordBytes = 16

	// replacedTries is how often a request is tried because another model has replaced that of its
	// service meanwhile.
	replacedTries = 3
)

// Server answers requests of texts. It is made by New.
type Server struct {
	queries *query.Server
	broaden func() (release func())

	// long and short hold a value for each text of that kind that is being tokenized. A short text
	// never waits for a long one.
	long, short chan struct{}

	// gates has the *gate of each service by its name.
	gates sync.Map
}

// New returns a server that sends its queries through q. broaden lets the process use all
// processors until release is called; it may be nil.
func New(q *query.Server, broaden func() (release func())) *Server {
	if broaden == nil {
		broaden = func() func() { return func() {} }
	}
	places := max(runtime.NumCPU()/tokenizerShare, 1)
	return &Server{queries: q, broaden: broaden, long: make(chan struct{}, places), short: make(chan struct{}, places)}
}

// Answer answers a request. ctx is done when its client has left. The caller releases the
// answer.
func (s *Server) Answer(ctx context.Context, r *Request) (*Answer, *query.Error) {
	err := query.ErrUnavailable
	for range replacedTries {
		a := &Answer{Rows: make([][]float32, len(r.Items)), memory: r.Memory}
		if err = s.try(ctx, r, a); err == nil {
			return a, nil
		}
		a.Release()
		if err != errReplaced {
			break
		}
		if next := s.queries.Service([]byte(r.Service.Name)); next != nil {
			r.Service = next
		}
	}
	return nil, err
}

// try answers a request with the service that it names.
func (s *Server) try(ctx context.Context, r *Request, a *Answer) *query.Error {
	v, failed := s.queries.Awake(r.Service, r.Arrival, ctx.Done())
	if failed != nil {
		return failed
	}
	r.Service = v
	sig := v.Signature()
	switch {
	case v.Text == nil:
		return query.Invalid("model %q has no tokenizer: put a tokenizer.json beside its file, or set tokenizer", v.Name).Of("model")
	case sig == nil:
		refusal := v.NotReady()
		v.Stats.TurnAway(refusal)
		return refusal
	}
	if err := checkInputs(sig); err != nil {
		return err.Of("model")
	}
	// A call of its own checks what the client asks for, and knows the deadline.
	c := query.NewCall(v)
	c.Arrival = r.Arrival
	if err := r.Options.Apply(c); err != nil {
		return err
	}
	w := &work{Request: r, answer: a, text: v.Text, sequences: make([]sequence, len(r.Items))}
	inTime, cancel := context.WithDeadline(ctx, c.Deadline())
	defer cancel()
	err := s.tokenize(inTime, w, longest(v, sig))
	if err == nil {
		err = s.run(ctx, c.Deadline(), w)
	}
	// What a context stops does not say why.
	switch {
	case err != nil && ctx.Err() != nil:
		return errLeft
	case err == errStopped:
		// The scheduler, which counts what it sheds, has not seen these texts.
		for range len(r.Items) - w.sent {
			v.Stats.TurnAway(errLate)
		}
		return errLate
	}
	return err
}

// longest returns the longest sequence that a service takes.
func longest(v *query.Service, sig *query.Signature) int {
	limit := v.Text.Longest()
	for _, most := range []int{v.MaxSeqLen, fixedLength(sig)} {
		if most > 0 && (limit == 0 || most < limit) {
			limit = most
		}
	}
	if limit == 0 {
		return math.MaxInt32
	}
	return limit
}

// tokenBytes is the memory of a token: its ID and its type.
const tokenBytes = 16

// tokenize makes one sequence, and reports whether it was truncated.
func (w *work) tokenize(ctx context.Context, i, limit int) (cut bool, _ *query.Error) {
	item, to := &w.Items[i], &w.sequences[i]
	if item.IDs != nil {
		for _, id := range item.IDs {
			if id < 0 || w.text.Vocabulary > 0 && id >= w.text.Vocabulary {
				return false, query.Invalid("text %d has the token %d, but the model has %d tokens, numbered from 0", i, id, w.text.Vocabulary).Of("input")
			}
		}
		to.ids = item.IDs[:min(len(item.IDs), limit)]
		return len(item.IDs) > limit, nil
	}
	e, err := w.text.Tokenizer.Encode(ctx, item.Text, item.Pair, limit)
	switch {
	case err != nil && ctx.Err() != nil:
		return false, errStopped
	case err != nil:
		return false, query.Invalid("text %d cannot be tokenized: %v", i, err).Of("input")
	case len(e.IDs) == 0 || len(e.IDs) > limit || len(e.Types) != len(e.IDs):
		return false, query.Invalid("text %d has no tokens: send a text that is not empty", i).Of("input")
	}
	to.ids, to.types = e.IDs, e.Types
	return e.Cut, w.answer.take(tokenBytes * len(e.IDs))
}

// tokenize makes the sequences of a request, in this goroutine or, for much text, in as many
// as there are places. A place is taken for one text at a time, so that a small request waits
// for no large one.
func (s *Server) tokenize(ctx context.Context, w *work, limit int) *query.Error {
	bytes := 0
	for i := range w.Items {
		bytes += min(w.Items[i].bytes(), wordBytes*limit)
	}
	workers := 1
	if bytes >= broadBytes {
		defer s.broaden()()
		workers = min(cap(s.short), len(w.Items))
	}
	var cut, next atomic.Int64
	all := newGroup(ctx)
	defer all.cancel()
	take := func() *query.Error {
		for i := int(next.Add(1)) - 1; i < len(w.Items); i = int(next.Add(1)) - 1 {
			places := s.short
			if w.Items[i].bytes() >= longBytes {
				places = s.long
			}
			select {
			case places <- struct{}{}:
			case <-all.ctx.Done():
				return errStopped
			}
			shortened, err := w.tokenize(all.ctx, i, limit)
			<-places
			// The process may have one processor, on which the scheduler and others wait.
			runtime.Gosched()
			if err != nil {
				return err
			}
			if shortened {
				cut.Add(1)
			}
		}
		return nil
	}
	for range workers - 1 {
		all.start(take)
	}
	all.run(take)
	err := all.wait()
	w.answer.Cut = int(cut.Load())
	return err
}

// run sends the queries of a request, the longest first, and waits for all of them. None is
// sent after the deadline, which the scheduler knows, too.
func (s *Server) run(ctx context.Context, deadline time.Time, w *work) *query.Error {
	order := make([]int, len(w.sequences))
	for i := range order {
		order[i] = i
		w.answer.Tokens += len(w.sequences[i].ids)
	}
	// Sequences of a length become batches, so they are sent one after another. The longest are
	// first, for they take the most time.
	slices.SortStableFunc(order, func(a, b int) int { return len(w.sequences[b].ids) - len(w.sequences[a].ids) })
	all := newGroup(ctx)
	defer all.cancel()
	send := func(n int) *query.Error {
		q := one{work: w, index: order[n]}
		var trace *tracing.Query
		if n == 0 {
			trace = w.Trace
		}
		return s.queries.Answer(w.Service, &q, trace, all.ctx.Done())
	}
	if len(order) == 1 {
		all.run(func() *query.Error { return send(0) })
	} else {
		all.run(func() *query.Error { return s.feed(deadline, all, w, send) })
	}
	err := all.wait()
	if err == nil && w.gate != nil {
		w.gate.learn(w.answer.Tokens, time.Since(w.turn))
	}
	w.variants.Range(func(name, _ any) bool {
		if w.answer.Variant != "" {
			w.answer.Variant = "" // several have answered
			return false
		}
		w.answer.Variant = name.(string)
		return true
	})
	return err
}

// feed sends the queries of a request of several texts through the gate of their service.
func (s *Server) feed(deadline time.Time, all *group, w *work, send func(n int) *query.Error) *query.Error {
	of, _ := s.gates.LoadOrStore(w.Service.Name, newGate())
	g := of.(*gate)
	// The context of the group is done when one of its queries has failed.
	until, cancel := context.WithDeadline(all.ctx, deadline)
	defer cancel()
	if !g.enter(until) {
		return errStopped
	}
	defer g.leave()
	if g.hopeless(w.answer.Tokens, time.Until(deadline)) {
		return errStopped
	}
	w.gate, w.turn = g, time.Now()
	for n := range w.sequences {
		if !g.admit(until, most(w.Service)) {
			return errStopped
		}
		w.sent++
		all.start(func() *query.Error { return send(n) }, g.answered)
	}
	return nil
}

// group runs functions until one of them fails, which ends the context of the others.
type group struct {
	ctx    context.Context
	cancel context.CancelFunc
	first  atomic.Pointer[query.Error]
	all    sync.WaitGroup
}

// newGroup returns a group whose context is below ctx. The caller cancels it in the end.
func newGroup(ctx context.Context) *group {
	g := new(group)
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// run runs do in this goroutine.
func (g *group) run(do func() *query.Error) {
	if err := do(); err != nil {
		g.first.CompareAndSwap(nil, err)
		g.cancel()
	}
}

// start runs do in a goroutine, and then, once the others know of its error, the functions after.
func (g *group) start(do func() *query.Error, after ...func()) {
	g.all.Go(func() {
		g.run(do)
		for _, f := range after {
			f()
		}
	})
}

// wait returns the first error once all functions have returned.
func (g *group) wait() *query.Error {
	g.all.Wait()
	return g.first.Load()
}
