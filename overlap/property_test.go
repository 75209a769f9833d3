package overlap

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

// twin drives two schedulers with the same events and holds what must be true
// of every schedule against what they decide.
type twin struct {
	*rapid.T
	config  Config
	policy  policy
	costs   *costs
	a, b    *Scheduler
	now     time.Duration
	lastID  models.QueryID
	open    map[models.QueryID]models.Query // accepted, not answered
	batches map[models.BatchID]*track
	left    map[models.QueryID]bool // whose client has left
	down    map[worker]bool
	rounds  [][]*Round       // by device, then by slot
	apart   []models.Outcome // the span of each overrun

	services []models.Service // as they are now; config has those of the beginning
	removed  map[models.ServiceID]bool
	varied   bool                    // queries may wait elsewhere than they arrived
	filler   map[models.QueryID]bool // whose service was best effort when they arrived
	routed   bool                    // some service has, or had, pipelines
	moves    []Move                  // under way
}

// worker is a service on a device.
type worker struct {
	service models.ServiceID
	device  int
}

// track is what was seen of a batch that is not over.
type track struct {
	worker
	queries []models.QueryID
	size    int
	next    int
}

func TestSchedulerProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTwin(t)
		w.run(map[string]func(*rapid.T){"plan ": w.plan})
	})
}

// run lets anything happen in any order, and more of it.
func (w *twin) run(more map[string]func(*rapid.T)) {
	actions := map[string]func(*rapid.T){
		"":       func(*rapid.T) { w.settle() },
		"arrive": w.arrive, "arrive ": w.arrive, "arrive  ": w.arrive,
		"next": w.next, "next ": w.next,
		"finish": w.finish, "finish ": w.finish,
		"land":   w.land,
		"cancel": w.cancel,
		"worker": w.worker,
		"add":    w.add, "change": w.change, "remove": w.remove,
		"wait":  w.wait,
		"plan":  w.plan,
		"moved": w.moved, "moved ": w.moved,
	}
	maps.Copy(actions, more)
	w.Repeat(actions)
	w.drain()
}

func newTwin(t *rapid.T) *twin {
	c := &costs{}
	w := &twin{
		T: t, costs: c, open: map[models.QueryID]models.Query{},
		batches: map[models.BatchID]*track{}, left: map[models.QueryID]bool{}, down: map[worker]bool{},
		removed: map[models.ServiceID]bool{}, filler: map[models.QueryID]bool{},
	}
	w.policy = anyPolicy(t)
	w.rounds = make([][]*Round, rapid.IntRange(1, 3).Draw(t, "devices"))
	w.config = Config{
		Devices: slices.Repeat([]Predictor{c}, len(w.rounds)), MaxRetries: rapid.IntRange(0, 2).Draw(t, "retries"),
		Ways:     rapid.SampledFrom([]int{0, 1, 2, 3, 16}).Draw(t, "ways"),
		Services: anyServices(t, c), Selector: whichever{}, RoundTime: rapid.SampledFrom([]time.Duration{0, 2, 8}).Draw(t, "round time"),
	}
	if rapid.Bool().Draw(t, "links") {
		for range w.rounds {
			w.config.Links = append(w.config.Links, rapid.IntRange(0, 2).Draw(t, "link"))
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "units") == 0 {
		w.policy = overlap{}
		for range w.rounds {
			w.config.Units = append(w.config.Units, rapid.IntRange(1, 5).Draw(t, "units of a device"))
		}
	}
	if rapid.Bool().Draw(t, "some alone") {
		for range w.rounds {
			w.config.Alone = append(w.config.Alone, rapid.Bool().Draw(t, "alone"))
		}
	}
	for i := range w.rounds {
		w.rounds[i] = make([]*Round, w.config.each()[i])
	}
	for i := range w.config.Services {
		w.route(t, &w.config.Services[i])
	}
	w.services = slices.Clone(w.config.Services)
	w.varied = slices.ContainsFunc(w.services, func(m models.Service) bool { return m.Of != "" })
	w.a, w.b = newScheduler(w.config, w.policy), newScheduler(w.config, w.policy)
	return w
}

func anyPolicy(t *rapid.T) policy {
	return rapid.SampledFrom([]policy{
		overlap{}, overlap{whole: true}, abacus{}, fcfs{}, sjf{}, edf{}, shedding{}, pair{}, reactive{}, clockwork{},
		together{operators: 1}, together{operators: 3}, alone{},
	}).Draw(t, "policy")
}

// anyServices draws services and what they cost.
func anyServices(t *rapid.T, c *costs) (services []models.Service) {
	c.margin = rapid.SampledFrom([]int{0, 0, 20, 50}).Draw(t, "margin")
	for i := range models.ServiceID(rapid.IntRange(1, 5).Draw(t, "services")) {
		services = append(services, anyService(t, c, i))
		for o := range i {
			c.pair(o, i, float64(rapid.IntRange(50, 120).Draw(t, "factor"))/100)
		}
	}
	return services
}

// anyService draws a service and what it costs.
func anyService(t *rapid.T, c *costs, id models.ServiceID) models.Service {
	c.set(id, time.Duration(rapid.IntRange(0, 4).Draw(t, "op")), rapid.IntRange(0, 100).Draw(t, "grow"))
	return anyPromise(t, models.Service{
		ID: id, Name: string(rune('a' + id)), Operators: rapid.IntRange(1, 6).Draw(t, "operators"),
	})
}

// anyPromise draws what may change of a service.
func anyPromise(t *rapid.T, m models.Service) models.Service {
	m.QoSTarget = rapid.SampledFrom([]time.Duration{10, 1000}).Draw(t, "target")
	m.QueueLimit = rapid.IntRange(1, 8).Draw(t, "queue")
	m.MaxBatch, m.Ladder = rapid.IntRange(0, 5).Draw(t, "batch"), rapid.IntRange(0, 2).Draw(t, "ladder") == 0
	m.BestEffort = rapid.IntRange(0, 4).Draw(t, "best effort") == 0
	m.Of, m.Accuracy = rapid.SampledFrom([]string{"", "", "f", "f", "g"}).Draw(t, "of"), float64(m.ID%3)
	return m
}

// whichever selects by all that it is told.
type whichever struct{}

func (whichever) Select(of string, waiting int, slack time.Duration) string {
	return string(rune('a' + (len(of)+waiting+int(slack))%8))
}

// exported lets cmp look at the fields of types that are embedded.
var exported = cmp.Exporter(func(reflect.Type) bool { return true })

// same fails the test if the two schedulers have decided differently. A list that is empty may be nil, since
// schedulers use its memory again.
func (w *twin) same(what string, a, b any) {
	if diff := cmp.Diff(a, b, exported, cmpopts.EquateEmpty()); diff != "" {
		w.Fatalf("%s differs between two equal schedulers:\n%s", what, diff)
	}
}

func (w *twin) service(t *rapid.T) models.ServiceID {
	return models.ServiceID(rapid.IntRange(0, len(w.services)-1).Draw(t, "service"))
}

func (w *twin) arrive(t *rapid.T) {
	w.lastID++
	q := models.Query{
		ID: w.lastID, Service: w.service(t), Size: rapid.IntRange(1, 3).Draw(t, "size"),
		Shape: rapid.Uint64Range(0, 1).Draw(t, "shape"), Priority: rapid.IntRange(0, 2).Draw(t, "priority"),
		Arrival: w.now, Deadline: w.now + time.Duration(rapid.IntRange(0, 80).Draw(t, "deadline")),
		Accuracy: float64(rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "accuracy")), Fixed: rapid.IntRange(0, 4).Draw(t, "fixed") == 0,
		Alone: rapid.IntRange(0, 4).Draw(t, "alone") == 0,
	}
	errA, errB := w.a.arrive(w.now, q), w.b.arrive(w.now, q)
	if !errors.Is(errB, errors.Unwrap(errA)) && !errors.Is(errB, errA) {
		t.Fatalf("%v against %v", errA, errB)
	}
	if w.removed[q.Service] {
		if !errors.Is(errA, ErrUnknownService) {
			t.Fatalf("a query of a service that was removed: %v", errA)
		}
		return
	}
	if errors.Is(errA, ErrBadQuery) && q.Accuracy > w.services[q.Service].Accuracy {
		return
	}
	if errA == nil {
		w.open[q.ID], w.filler[q.ID] = q, w.services[q.Service].BestEffort
	} else if !errors.Is(errA, ErrQueueFull) && (!errors.Is(errA, ErrExpired) || q.Deadline > w.now) {
		t.Fatalf("a good query is refused: %v", errA)
	}
}

func (w *twin) next(t *rapid.T) {
	r, ok := w.a.next(w.now)
	rb, okB := w.b.next(w.now)
	w.same("next", ok, okB)
	if !ok {
		return
	}
	if w.rounds[r.Device][r.Slot] != nil {
		t.Fatal("a round while another runs")
	}
	w.same("group", r.Group, rb.Group)
	w.same("queries", r.Queries, rb.Queries)
	w.same("round", []any{r.Device, r.Slot, r.Number, r.Start, r.Predicted, r.Planned}, []any{rb.Device, rb.Slot, rb.Number, rb.Start, rb.Predicted, rb.Planned})
	w.rounds[r.Device][r.Slot] = &r
	w.inTime(&r)
	w.fits(&r)
	seen := map[models.ServiceID]bool{}
	for i, s := range r.Group.Spans {
		if at := (worker{s.Service, r.Device}); seen[s.Service] || w.overruns(at) || w.down[at] || w.removed[s.Service] {
			t.Fatalf("service %d: two spans, or its worker is down: %+v", s.Service, r)
		}
		seen[s.Service] = true
		w.span(s, r.Device, r.Queries[i])
	}
}

// inTime checks that nobody in a group is made late by the others: by its
// bound, it ends before the deadline of every query that ends with it and that
// could be in time alone. The published algorithm promises that of the most
// urgent only, and by the latency.
func (w *twin) inTime(r *Round) {
	times := r.Group.Spans[0].Times(len(r.Queries[0]))
	w.same("estimate", repeated(w.costs.estimate(r.Group), times), r.Predicted)
	w.startedInTime(r)
	if len(r.Group.Spans) < 2 {
		return
	}
	end, spans := w.now+r.Predicted.Bound, r.Group.Spans
	switch w.policy.(type) {
	case pair:
	case overlap:
		if w.a.last.lax {
			end = w.now + r.Predicted.Latency
		}
	case abacus:
		end, spans = w.now+r.Predicted.Latency, spans[:1]
	default:
		return
	}
	for i, s := range spans {
		if s.End < w.services[s.Service].Operators {
			continue
		}
		for _, id := range r.Queries[i] {
			q := w.open[id]
			alone := w.now + w.costs.estimate(models.Group{Spans: []models.Span{s}}).Latency
			if alone <= q.Deadline && end > q.Deadline && !w.left[id] {
				w.Fatalf("at %v query %d, which could end at %v and must at %v, is in a group until %v: %+v",
					w.now, id, alone, q.Deadline, end, r)
			}
		}
	}
}

// startedInTime checks that clockwork starts nothing that might be late for
// everybody in it, unless nothing is known of it or it explores.
func (w *twin) startedInTime(r *Round) {
	if _, ok := w.policy.(clockwork); !ok || w.routed {
		return
	}
	if last := w.a.last; r.Predicted.Latency == 0 || last.candidates[last.group[0]].explores || w.filler[r.Queries[0][0]] {
		return
	}
	for _, id := range r.Queries[0] {
		if w.now+r.Predicted.Bound <= w.open[id].Deadline {
			return
		}
	}
	w.Fatalf("at %v a round starts that may be late for all: %+v", w.now, *r)
}

// plan decides ahead, which nobody must notice.
func (w *twin) plan(*rapid.T) {
	before := w.a.Metrics()
	w.a.Advance(w.now)
	w.b.Advance(w.now)
	after := w.a.Metrics()
	after.Plans = before.Plans
	w.same("metrics", before, after)
	if w.a.Ended() {
		w.Fatal("planning has ended something")
	}
}

// span checks that a batch goes on where it ended, with the same queries.
func (w *twin) span(s models.Span, device int, queries []models.QueryID) {
	b := w.batches[s.Batch]
	if b == nil {
		b = &track{worker: worker{s.Service, device}, queries: append([]models.QueryID(nil), queries...), size: s.Size}
		w.batches[s.Batch] = b
		for _, id := range queries {
			q, ok := w.open[id]
			if !ok {
				w.Fatalf("query %d runs, but is not waiting for an answer", id)
			}
			if q.Service != s.Service && q.Fixed || q.Accuracy > w.services[s.Service].Accuracy {
				w.Fatalf("%+v is answered by %+v", q, w.services[s.Service])
			}
		}
		if len(queries) > s.Size {
			w.inSeries(s, device)
		} else if largest := max(w.services[s.Service].MaxBatch, w.open[queries[0]].Size); s.Size > largest && !w.routed { // or it was reserved before that changed
			w.Fatalf("batch %d of size %d starts, at most %d is merged", s.Batch, s.Size, largest)
		} else if w.services[s.Service].Ladder && len(queries) > 1 && !models.OnLadder(s.Size) && !w.routed {
			w.Fatalf("batch %d of size %d starts, which is not on the ladder", s.Batch, s.Size)
		}
	}
	if b.worker != (worker{s.Service, device}) {
		w.Fatalf("batch %d is held by %v and runs on device %d", s.Batch, b.worker, device)
	}
	if s.Start != b.next || s.End <= s.Start || s.End > w.services[s.Service].Operators {
		w.Fatalf("batch %d is at operator %d and runs [%d,%d)", s.Batch, b.next, s.Start, s.End)
	}
	if s.End < w.services[s.Service].Operators && !w.routed && !w.cuts() {
		w.Fatalf("batch %d runs [%d,%d) of %d operators", s.Batch, s.Start, s.End, w.services[s.Service].Operators)
	}
	w.same("members of a batch", b.queries, queries)
}

// cuts reports whether the policy ends a round before the last operator of a batch.
func (w *twin) cuts() bool {
	switch p := w.policy.(type) {
	case overlap:
		return !p.whole
	case abacus, together, alone:
		return true
	}
	return false
}

// inSeries checks that queries run one after another only where no batch is merged, within the
// time for that, and all in time.
func (w *twin) inSeries(s models.Span, device int) {
	r, sv := w.a.last.device.slot(w.a.rounds).round, &w.services[s.Service]
	if len(r.Group.Spans) != 1 || s.Size != 1 || s.Start > 0 || s.End < sv.Operators || sv.MaxBatch > 1 || w.costs.span(s)*time.Duration(len(r.Queries[0])) > mostBackToBack*w.config.RoundTime {
		w.Fatalf("back to back where a round takes %v: %+v", w.config.RoundTime, r)
	}
	for _, id := range r.Queries[0] {
		if q := w.open[id]; q.Size != 1 || q.SeqLen != s.SeqLen || !w.filler[id] && w.now+r.Predicted.Bound > q.Deadline {
			w.Fatalf("at %v %+v is in a series: %+v", w.now, q, r)
		}
	}
}

func (w *twin) finish(t *rapid.T) {
	device := rapid.IntRange(0, len(w.rounds)-1).Draw(t, "device")
	slot := rapid.IntRange(0, len(w.rounds[device])-1).Draw(t, "slot")
	round := w.rounds[device][slot]
	if round == nil {
		return
	}
	o := models.Outcome{Round: round.Number, Device: device}
	for _, s := range round.Group.Spans {
		so := w.outcome(t, s, device)
		if rapid.IntRange(0, 9).Draw(t, "overrun") == 0 {
			so.Status = models.SpanOverrun
			w.apart = append(w.apart, models.Outcome{Round: o.Round, Device: device, Spans: []models.SpanOutcome{so}})
		} else {
			w.batches[s.Batch].next = so.Reached
		}
		o.Spans = append(o.Spans, so)
	}
	if rapid.Bool().Draw(t, "on time") {
		w.now += round.Predicted.Latency
	}
	w.rounds[device][slot] = nil
	if err := errors.Join(w.a.finish(w.now, o), w.b.finish(w.now, o)); err != nil {
		t.Fatal(err)
	}
}

// fits checks that rounds have no more units than their device has, but for one while overruns have
// them all.
func (w *twin) fits(r *Round) {
	units, others := 0, 0
	width := func(s models.Span) int {
		if s.Share == 0 {
			return w.config.each()[r.Device]
		}
		return s.Share
	}
	for _, o := range w.rounds[r.Device] {
		if o != nil {
			units += width(o.Spans[0])
		}
	}
	for _, o := range w.apart {
		if o.Device == r.Device && w.config.each()[r.Device] > 1 {
			others += width(o.Spans[0].Span)
		}
	}
	if all := w.config.each()[r.Device]; units > all || units > 1 && units+others > all {
		w.Fatalf("%d of %d units are used, overruns have %d: %+v", units, all, others, *r)
	}
}

// outcome draws what becomes of a span.
func (w *twin) outcome(t *rapid.T, s models.Span, device int) models.SpanOutcome {
	so := models.SpanOutcome{Span: s, Reached: s.End, Took: 1}
	switch rapid.IntRange(0, 9).Draw(t, "status") {
	case 0:
		so.Status, so.Reached = models.SpanStopped, rapid.IntRange(s.Start, s.End).Draw(t, "reached")
		if len(w.batches[s.Batch].queries) > s.Size {
			so.Reached = rapid.SampledFrom([]int{0, s.End}).Draw(t, "reached all")
		}
	case 1:
		so.Status = models.SpanLost
		w.setDown(worker{s.Service, device}, true)
	case 2:
		so.Status = models.SpanFailed
	}
	return so
}

// overruns reports whether a span of a worker was set apart.
func (w *twin) overruns(at worker) bool {
	return slices.ContainsFunc(w.apart, func(o models.Outcome) bool { return at == worker{o.Spans[0].Span.Service, o.Device} })
}

// land ends the oldest overrun.
func (w *twin) land(t *rapid.T) {
	if len(w.apart) == 0 {
		return
	}
	o := w.apart[0]
	w.apart = w.apart[1:]
	o.Spans[0] = w.outcome(t, o.Spans[0].Span, o.Device)
	w.batches[o.Spans[0].Span.Batch].next = o.Spans[0].Reached
	if err := errors.Join(w.a.finish(w.now, o), w.b.finish(w.now, o)); err != nil {
		t.Fatal(err)
	}
}

func (w *twin) cancel(t *rapid.T) {
	if w.lastID == 0 {
		return
	}
	id := models.QueryID(rapid.Uint64Range(1, uint64(w.lastID)).Draw(t, "query"))
	w.left[id] = true
	stop, running := w.a.cancel(w.now, id)
	stopB, runningB := w.b.cancel(w.now, id)
	w.same("stop", stop, stopB)
	w.same("running", running, runningB)
	if stop.Batch != 0 && (!running || w.batches[stop.Batch] == nil) {
		t.Fatalf("batch %d is to stop, but does not run", stop.Batch)
	}
}

func (w *twin) worker(t *rapid.T) {
	w.setDown(worker{w.service(t), rapid.IntRange(0, len(w.rounds)-1).Draw(t, "device")}, rapid.Bool().Draw(t, "down"))
}

func (w *twin) setDown(at worker, down bool) {
	w.down[at] = down
	for _, s := range []*Scheduler{w.a, w.b} {
		if down {
			s.down(w.now, at.service, at.device)
		} else {
			s.up(w.now, at.service, at.device)
		}
	}
}

func (w *twin) wait(t *rapid.T) { w.now += time.Duration(rapid.IntRange(1, 30).Draw(t, "wait")) }

// settle takes the answers and checks the invariants after an event.
func (w *twin) settle() {
	answers, released := w.a.backlog.answers.take(), w.a.backlog.released.take()
	moves := append([]Move{}, w.a.backlog.moves.take()...)
	w.same("moves", moves, append([]Move{}, w.b.backlog.moves.take()...))
	w.moves = append(w.moves, moves...)
	w.same("stops", append([]Held{}, w.a.backlog.stops.take()...), append([]Held{}, w.b.backlog.stops.take()...))
	w.same("answers", answers, w.b.backlog.answers.take())
	w.same("released", released, w.b.backlog.released.take())
	for _, a := range answers {
		q, ok := w.open[a.Query]
		if !ok || w.removed[a.Service] {
			w.Fatalf("a second answer, or one to nobody: %+v", a)
		}
		delete(w.open, a.Query)
		w.justified(a, q)
	}
	for _, r := range released {
		delete(w.batches, r.Batch) // it must not run again, or span finds it elsewhere than at 0
	}
	for _, s := range []*Scheduler{w.a, w.b} {
		if err := s.Check(); err != nil {
			w.Fatal(err)
		}
	}
}

// justified checks that a query was not dropped that could have finished, unless a
// reservation leaves it no time.
func (w *twin) justified(a Answer, q models.Query) {
	left := models.Span{Service: a.Service, End: w.services[a.Service].Operators, Size: q.Size}
	b := w.batches[a.Batch]
	if b != nil && a.Result == Dropped {
		left.Start, left.Size = b.next, b.size
	}
	rest := w.costs.span(left)
	hopeless := rest > 0 && w.now+rest > q.Deadline && !w.filler[q.ID]
	expired := w.now >= q.Deadline
	ok := true
	switch a.Reason {
	case ReasonNone:
		ok = a.Result == Finished && b.next == left.End && !w.left[q.ID]
	case ReasonCancelled:
		ok = a.Result == Cancelled && w.left[q.ID]
	case ReasonCannotFinish:
		ok = a.Result == Dropped && (hopeless || w.routed)
	case ReasonDeadlinePassed:
		ok = a.Result == Dropped && expired
	case ReasonWorkerLost:
		ok = a.Result == Failed && (hopeless || expired || a.Retries == w.config.MaxRetries || w.routed && a.Retries > 0)
	}
	if !ok {
		w.Fatalf("at %v: %+v for %+v, of which %v is left", w.now, a, q, rest)
	}
}

// drain lets everything run to its end: every query must get its answer.
func (w *twin) drain() {
	for id := range w.services {
		for device := range w.rounds {
			w.setDown(worker{models.ServiceID(id), device}, false)
		}
	}
	w.settle()
	_ = w.a.Step(w.now, &Event{Kind: Drain})
	_ = w.b.Step(w.now, &Event{Kind: Drain})
	for range 10_000 {
		if len(w.apart) > 0 {
			w.land(w.T)
			w.settle()
		}
		if w.a.Idle() {
			break
		}
		for range w.rounds {
			w.next(w.T)
		}
		ran := false
		for device, rounds := range w.rounds {
			for slot, round := range rounds {
				if round == nil {
					continue
				}
				ran = true
				o := models.Outcome{Round: round.Number, Device: device}
				for _, s := range round.Group.Spans {
					o.Spans = append(o.Spans, models.SpanOutcome{Span: s, Reached: s.End})
					w.batches[s.Batch].next = s.End
				}
				w.now = max(w.now, round.Start+round.Predicted.Latency)
				w.rounds[device][slot] = nil
				if err := errors.Join(w.a.finish(w.now, o), w.b.finish(w.now, o)); err != nil {
					w.Fatal(err)
				}
			}
		}
		for len(w.moves) > 0 {
			ran = true
			w.ended(0, models.SpanDone)
			w.settle()
		}
		if at, ok := w.a.backlog.wake(); ok && !ran {
			w.now = max(w.now, at)
		}
		w.settle()
	}
	if len(w.open) != 0 || !w.a.Idle() || !w.b.Idle() {
		w.Fatalf("%d queries were never answered", len(w.open))
	}
	for _, v := range w.a.backlog.host.devices {
		if w.a.backlog.routes.tables.Reserved(v.index) > 0 {
			w.Fatalf("device %d is reserved for nobody", v.index)
		}
	}
}

// route draws pipelines for a service, or none.
func (w *twin) route(t *rapid.T, m *models.Service) {
	m.Pipelines = nil
	if m.BestEffort || len(w.config.Units) > 0 {
		return
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "pipelines") {
		p := models.Pipeline{Batch: rapid.IntRange(1, 5).Draw(t, "batch of pipeline")}
		for end := 0; end < m.Operators; {
			end = rapid.IntRange(end+1, m.Operators).Draw(t, "end")
			devices := rapid.SliceOfNDistinct(rapid.IntRange(0, len(w.rounds)-1), 1, -1, rapid.ID).Draw(t, "devices")
			p.Stages = append(p.Stages, models.Stage{End: end, Devices: devices, Move: time.Duration(rapid.IntRange(0, 3).Draw(t, "move"))})
		}
		m.Pipelines = append(m.Pipelines, p)
		w.routed = true
	}
}

// moved ends a move.
func (w *twin) moved(t *rapid.T) {
	if len(w.moves) > 0 {
		status := rapid.SampledFrom([]models.Status{models.SpanDone, models.SpanDone, models.SpanLost}).Draw(t, "status")
		w.ended(rapid.IntRange(0, len(w.moves)-1).Draw(t, "move"), status)
	}
}

func (w *twin) ended(i int, status models.Status) {
	m := w.moves[i]
	w.moves = slices.Delete(w.moves, i, i+1)
	if b := w.batches[m.Batch]; b.device != m.Device || b.next != m.Operator || b.size != m.Size {
		w.Fatalf("%+v is moved as %+v", b, m)
	} else if status == models.SpanDone {
		b.device = m.To
	}
	if err := w.both(func(s *Scheduler) error { return s.backlog.routes.moved(w.now, m, 1, status) }); err != nil {
		w.Fatal(err)
	}
	if err := w.both(func(s *Scheduler) error { return s.backlog.routes.moved(w.now, m, 1, status) }); !errors.Is(err, ErrUnknownRound) {
		w.Fatalf("a move ends twice: %v", err)
	}
}
