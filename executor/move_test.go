package executor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// pool is two executors with one service, which share its memory and their outcomes.
type pool struct {
	*testing.T
	one, other *fixture
	moves      *wire.InputArena
}

// twoWorkers returns a pool of which both workers are ready.
func twoWorkers(t *testing.T, change func(*Options)) *pool {
	t.Helper()
	moves, err := wire.NewMoveArena(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	inputs, outcomes := newInputs(), make(chan Outcome, 2*MaxOutcomes)
	device := 0
	open := func() *fixture {
		device++
		return startReady(t, func(o *Options) {
			o.Services[0].Inputs, o.Services[0].Moves, o.Outcomes, o.Device = inputs, moves, outcomes, device
			if change != nil {
				change(o)
			}
		}, 1)
	}
	p := &pool{t, open(), open(), moves}
	t.Cleanup(func() {
		endBoth(t, p.one, p.other)
		p.awaitFree()
		if n, err := moves.Close(); n != 0 || err != nil {
			t.Errorf("%d blocks are left: %v", n, err)
		}
	})
	return p
}

// endBoth closes two executors that share memory, before either fixture closes that and
// looks whether processes are left.
func endBoth(t testing.TB, one, other *fixture) {
	t.Helper()
	for _, f := range []*fixture{one, other} {
		if err := f.Executor.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}

// awaitFree waits until all of the memory for moves is given back.
func (p *pool) awaitFree() {
	p.Helper()
	for end := time.Now().Add(patience); p.moves.Used() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("%d bytes of the memory for moves are in use", p.moves.Used())
		}
	}
}

// pause starts a batch on an executor that stops at an operator.
func (p *pool) pause(on *fixture, batch models.BatchID, at int, texts ...string) SpanRequest {
	p.Helper()
	r := on.whole(0, batch, texts...)
	r.Span.End = at
	if s := on.do(r); s.Status != models.SpanDone || s.Reached != at {
		p.Fatalf("%+v", s)
	}
	r.Span.Start, r.Span.End = at, fakeOperators
	return r
}

// move moves a batch and returns what becomes of it.
func (p *pool) move(from, to *fixture, r SpanRequest) SpanOutcome {
	p.Helper()
	if err := Move(moveRound, from.Executor, to.Executor, r, 0); err != nil {
		p.Fatal(err)
	}
	return p.moved(from)
}

func (p *pool) moved(from *fixture) SpanOutcome {
	p.Helper()
	o := from.receive()
	if !o.Moved || o.Round != moveRound || len(o.Spans) != 1 || o.Device != from.opts.Device {
		p.Fatalf("%+v", o)
	}
	return o.Spans[0]
}

// rest runs the rest of a batch and expects its text.
func (p *pool) rest(on *fixture, r SpanRequest, want ...string) {
	p.Helper()
	r.Queries = nil
	if s := on.do(r); s.Status != models.SpanDone || fmt.Sprint(texts(s)) != fmt.Sprint(want) {
		p.Errorf("%+v, want %q", s, want)
	}
}

// A batch goes on where it stood, also a second time, with the values where they lie or
// copied; the memory is given back when it has finished, was released, or has copied.
func TestMove(t *testing.T) {
	p := twoWorkers(t, nil)
	for at := 1; at < fakeOperators; at++ {
		r := p.pause(p.one, 1, at, "x", "y")
		if s := p.move(p.one, p.other, r); s.Status != models.SpanDone || s.Err != nil || s.Reached != at {
			t.Fatalf("%+v", s)
		}
		if p.moves.Used() == 0 || p.one.held() != 0 {
			t.Errorf("%d bytes for moves; the first worker holds %d", p.moves.Used(), p.one.held())
		}
		p.rest(p.other, r, "x0123", "y0123")
		p.awaitFree()
		// What is gone cannot go on.
		if s := p.one.do(SpanRequest{Span: r.Span}); s.Status != models.SpanLost || !errors.Is(s.Err, ErrBatchLost) {
			t.Errorf("%+v", s)
		}
	}
	r := p.pause(p.one, 2, 1, "copies")
	p.move(p.one, p.other, r)
	if p.moves.Used() != 0 {
		t.Error("what was copied is kept")
	}
	if s := p.move(p.other, p.one, r); s.Status != models.SpanDone {
		t.Fatalf("back: %+v", s)
	}
	p.rest(p.one, r, "copies0123")
	r = p.pause(p.one, 3, 2, "x")
	p.move(p.one, p.other, r)
	p.other.Release(0, 3)
	p.awaitFree()
}

// Where a batch like it has moved before, a batch does not wait for the span that its worker
// is sent next, and what a move is said to take is without what it waits for.
func TestMoveBeforeTheNextSpan(t *testing.T) {
	gate := t.TempDir() + "/gate"
	p := twoWorkers(t, nil)
	r := p.pause(p.one, 1, 2, "x")
	p.move(p.one, p.other, r)
	p.rest(p.other, r, "x0123")
	r = p.pause(p.one, 2, 2, "y")
	if err := Move(moveRound, p.one.Executor, p.other.Executor, r, 0); err != nil {
		t.Fatal(err)
	}
	next := p.one.whole(0, 3, "0 await "+gate)
	if err := p.one.Run(1, []SpanRequest{next}); err != nil {
		t.Fatal(err)
	}
	if s := p.moved(p.one); s.Status != models.SpanDone { // though the gate is closed
		t.Fatalf("%+v", s)
	}
	p.rest(p.other, r, "y0123")
	touch(t, gate)
	o := p.one.receive()
	if o.Round != 1 || o.Spans[0].Status != models.SpanDone {
		t.Errorf("%+v", o)
	}
	texts(o.Spans[0])
	// One that takes more along than the last of its kind has another block.
	from := p.one.service(0)
	from.mu.Lock()
	from.mu.moved[kind{start: 2, size: r.Span.Size}] = 1
	from.mu.Unlock()
	r = p.pause(p.one, 4, 2, "z")
	if s := p.move(p.one, p.other, r); s.Status != models.SpanDone {
		t.Fatalf("%+v", s)
	}
	p.rest(p.other, r, "z0123")
}

// steps are the steps of a move, of which the last is that of the second worker.
var steps = map[int]string{atDescribe: "describe", atExport: "export", atImport: "import"}

// expectLost expects that a batch was lost on its way, and that it can be run again.
func (p *pool) expectLost(s SpanOutcome, r SpanRequest, reason error) {
	p.Helper()
	if s.Status != models.SpanLost || !errors.Is(s.Err, reason) || s.Reached != r.Span.Start {
		p.Errorf("%v %+v, want %v", s.Err, s, reason)
	}
	for _, f := range []*fixture{p.one, p.other} {
		awaitPID(f)
		if s := f.do(SpanRequest{Span: r.Span}); s.Status != models.SpanLost || !errors.Is(s.Err, ErrBatchLost) {
			p.Errorf("it is on device %d: %+v", f.opts.Device, s)
		}
	}
	p.awaitFree()
	p.usable()
}

// usable expects that batches can move as before.
func (p *pool) usable() {
	p.Helper()
	for _, way := range [][2]*fixture{{p.one, p.other}, {p.other, p.one}} {
		awaitPID(way[0])
		awaitPID(way[1])
		r := p.pause(way[0], 1000, 2, "x")
		if s := p.move(way[0], way[1], r); s.Status != models.SpanDone {
			p.Errorf("from device %d: %+v", way[0].opts.Device, s)
		}
		p.rest(way[1], r, "x0123")
	}
	p.awaitFree()
}

// A worker that dies in a step, by itself or for what it did, or that cannot take it, loses
// the batch and nothing else.
func TestMoveFails(t *testing.T) {
	for step, name := range steps {
		for verb, reason := range map[string]error{
			"exit 3": ErrExited, "kill": ErrKilled, "panic": ErrExited, "garbage": ErrProtocol, "hang": ErrSpanTimeout,
			"fail so": wire.ErrEngine, "device so": wire.ErrDeviceLost,
		} {
			t.Run(name+" "+verb, func(t *testing.T) {
				p := twoWorkers(t, func(o *Options) {
					if verb == "hang" {
						o.SpanTimeout = 300 * time.Millisecond
					}
				})
				r := p.pause(p.one, 1, 2, fmt.Sprintf("%d %s", step, verb))
				s := p.move(p.one, p.other, r)
				if verb == "device so" {
					ends := p.one
					if step == atImport {
						ends = p.other
					}
					awaitEvent(ends, WorkerLost, nil)
				}
				p.expectLost(s, r, reason)
			})
		}
	}
}

// Whichever side is killed, closed, or taken away while the other, or itself, takes a step,
// there is one outcome.
func TestMoveMeetsAnEnd(t *testing.T) {
	kill := func(f *fixture) {
		state, _ := f.State(0)
		syscall.Kill(state.PID, syscall.SIGKILL)
		awaitEvent(f, WorkerLost, nil)
	}
	remove := func(f *fixture) {
		f.remove(0)
		awaitEvent(f, WorkerStopped, nil)
	}
	for step, name := range steps {
		for _, side := range []string{"from", "to"} {
			for how, end := range map[string]func(*fixture){
				"killed": kill, "removed": remove, "closed": func(f *fixture) { f.Close() },
				"held": func(f *fixture) { f.Hold(context.Background(), errors.New("a test")) },
			} {
				t.Run(name+" "+side+" "+how, func(t *testing.T) {
					gate := t.TempDir() + "/gate"
					p := twoWorkers(t, func(o *Options) { o.CloseGrace = time.Millisecond })
					text := fmt.Sprintf("%d signal %s", step, gate)
					r := p.pause(p.one, 1, 2, text)
					if err := Move(moveRound, p.one.Executor, p.other.Executor, r, 0); err != nil {
						t.Fatal(err)
					}
					steps, ends := p.one, p.one
					if step == atImport {
						steps = p.other
					}
					if side == "to" {
						ends = p.other
					}
					awaitEvent(steps, WorkerOutput, nil)
					end(ends)
					touch(t, gate)
					s := p.moved(p.one)
					arrives := step == atImport && side == "from"
					if how == "killed" && side == "to" && step != atImport {
						arrives = s.Status == models.SpanDone // if the next worker was ready in time
					}
					if (s.Status == models.SpanDone) != arrives || (s.Status == models.SpanLost) == arrives || (s.Err == nil) != arrives {
						t.Errorf("%v %+v", s.Err, s)
					}
					if arrives {
						p.rest(p.other, r, text+"0123")
					}
					p.awaitFree()
					if n := len(p.one.Outcomes()); n != 0 {
						t.Errorf("%d more outcomes", n)
					}
					if how == "held" {
						ends.Resume()
						p.usable()
					}
				})
			}
		}
	}
}

// A batch that is released on its way, on either side, is lost or arrives, and leaves
// nothing behind once it is released where it arrived.
func TestMoveIsReleased(t *testing.T) {
	for step, name := range steps {
		t.Run(name, func(t *testing.T) {
			gate := t.TempDir() + "/gate"
			p := twoWorkers(t, nil)
			r := p.pause(p.one, 1, 2, fmt.Sprintf("%d signal %s", step, gate))
			if err := Move(moveRound, p.one.Executor, p.other.Executor, r, 0); err != nil {
				t.Fatal(err)
			}
			at := p.one
			if step == atImport {
				at = p.other
			}
			awaitEvent(at, WorkerOutput, nil)
			p.one.Release(0, 1)
			p.other.Release(0, 1)
			touch(t, gate)
			s := p.moved(p.one)
			if step == atExport { // nobody knew any more that it was to come to nothing
				if s.Status != models.SpanDone {
					t.Errorf("%+v", s)
				}
				p.other.Release(0, 1)
			} else if s.Status != models.SpanLost || !errors.Is(s.Err, ErrBatchLost) {
				t.Errorf("%v %+v", s.Err, s)
			}
			p.awaitFree()
			p.usable()
		})
	}
}

// A batch that was moved and is released while it runs reads its values until it has.
func TestMovedBatchIsReleasedAsItRuns(t *testing.T) {
	gate := t.TempDir() + "/gate"
	p := twoWorkers(t, nil)
	text := "2 signal " + gate
	r := p.pause(p.one, 1, 2, text)
	if s := p.move(p.one, p.other, r); s.Status != models.SpanDone {
		t.Fatalf("%+v", s)
	}
	p.other.send(SpanRequest{Span: r.Span})
	awaitEvent(p.other, WorkerOutput, nil)
	p.other.Release(0, 1)
	if p.moves.Used() == 0 {
		t.Error("what it reads is given back")
	}
	touch(t, gate)
	if s := p.other.receive().Spans[0]; s.Status != models.SpanDone || texts(s)[0] != text+"0123" {
		t.Errorf("%+v", s)
	}
	p.awaitFree()
}

// Where there is no room for what a batch takes along it is lost, and so it is when there
// is room again for another.
func TestMoveFindsNoRoom(t *testing.T) {
	p := twoWorkers(t, nil)
	all, _, err := p.moves.Alloc(p.moves.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	r := p.pause(p.one, 1, 2, "x")
	s := p.move(p.one, p.other, r)
	p.moves.Free(all)
	p.expectLost(s, r, wire.ErrArenaFull)
	if !strings.Contains(s.Err.Error(), "moving batch 1 at operator 2") {
		t.Error(s.Err)
	}
	r = p.pause(p.one, 2, 2, "huge")
	p.expectLost(p.move(p.one, p.other, r), r, wire.ErrArenaFull)
}

// What a worker says of a move is not believed.
func TestLiesOfMoves(t *testing.T) {
	for step, name := range steps {
		for _, lie := range liesOfMoves {
			if step != atDescribe && strings.HasPrefix(lie, "move of a ") {
				continue // in which nothing is said of values
			}
			t.Run(name+" "+lie, func(t *testing.T) {
				p := twoWorkers(t, nil)
				r := p.pause(p.one, 1, 2, fmt.Sprintf("%d lie %s", step, lie))
				p.expectLost(p.move(p.one, p.other, r), r, ErrProtocol)
			})
		}
	}
}

// A worker that lies has the block that came with the first step until it is gone, and
// nobody else's is given back for it then.
func TestLiarKeepsItsBlock(t *testing.T) {
	gate := make(chan struct{})
	p := twoWorkers(t, func(o *Options) { o.BeforeKill = func(models.ServiceID, int) { <-gate } })
	r := p.pause(p.one, 1, 2, "x")
	p.move(p.one, p.other, r) // after which it is known how much such a batch takes along
	p.rest(p.other, r, "x0123")
	p.awaitFree()
	r = p.pause(p.one, 2, 2, fmt.Sprintf("%d lie move of a shape", atDescribe))
	if s := p.move(p.one, p.other, r); s.Status != models.SpanLost || !errors.Is(s.Err, ErrProtocol) {
		t.Errorf("%v %+v", s.Err, s)
	}
	if p.moves.Used() == 0 {
		t.Error("what it may write to is given back")
	}
	own, _, err := p.moves.Alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	close(gate)
	awaitEvent(p.one, WorkerLost, nil)
	if p.moves.Used() != wire.ArenaAlign {
		t.Errorf("%d bytes are in use", p.moves.Used())
	}
	p.moves.Free(own)
}

// A move that cannot be meant is refused, and has no outcome.
func TestMoveRefuses(t *testing.T) {
	p := twoWorkers(t, nil)
	r := p.pause(p.one, 1, 2, "x")
	apart := startReady(t, func(o *Options) { o.Services[0].Inputs, o.Services[0].Moves = p.one.Arena(0), p.moves }, 1)
	without := startReady(t, func(o *Options) { o.Services[0].Inputs, o.Outcomes = p.one.Arena(0), p.one.outcomes }, 1)
	another := startReady(t, func(o *Options) { o.Services[0].Moves, o.Outcomes = p.moves, p.one.outcomes }, 1)
	start, none, strange, far := r, r, r, r
	start.Span.Start, none.Queries, strange.Span.Service = 0, nil, 7
	far.Queries = []wire.QueryTensors{{Inputs: []models.Tensor{{Offset: 1 << 40, Bytes: 1}}}}
	for name, c := range map[string]struct {
		from, to *fixture
		request  SpanRequest
		want     error
	}{
		"to itself":          {p.one, p.one, r, ErrBadSpan},
		"from the start":     {p.one, p.other, start, ErrBadSpan},
		"without queries":    {p.one, p.other, none, ErrBadSpan},
		"inputs elsewhere":   {p.one, p.other, far, ErrBadSpan},
		"unknown service":    {p.one, p.other, strange, ErrUnknownService},
		"other outcomes":     {p.one, apart, r, ErrOptions},
		"no memory":          {p.one, without, r, ErrOptions},
		"memory elsewhere":   {p.one, another, r, ErrOptions},
		"from where none is": {without, p.other, r, ErrOptions},
	} {
		if err := Move(moveRound, c.from.Executor, c.to.Executor, c.request, 0); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for _, f := range []*fixture{without, another, apart} {
		f.Executor.Close()
	}
	if err := Move(moveRound, p.one.Executor, without.Executor, r, 0); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if n := p.one.moves.Load(); n != 0 || p.one.service(0).rounds.Load() != 0 || p.other.service(0).rounds.Load() != 0 {
		t.Errorf("%d moves are counted", n)
	}
	p.usable()
	p.rest(p.one, r, "x0123") // it stayed
	p.one.Close()             // before the others see whether processes are left
	p.other.Close()
}

// What the request says is wrong of the batch, and what its worker finds out, loses it.
func TestMoveOfWhatIsNotThere(t *testing.T) {
	p := twoWorkers(t, nil)
	r := p.pause(p.one, 1, 2, "x")
	unknown, elsewhere := r, r
	unknown.Span.Batch = 77
	p.expectLost(p.move(p.one, p.other, unknown), unknown, ErrBatchLost)
	elsewhere.Span.Start = 3
	p.expectLost(p.move(p.one, p.other, elsewhere), elsewhere, wire.ErrSpanOrder)
	r, there := p.pause(p.one, 2, 2, "x"), p.pause(p.other, 2, 3, "y")
	if s := p.move(p.one, p.other, r); s.Status != models.SpanLost || !errors.Is(s.Err, ErrBadSpan) {
		t.Errorf("%+v", s)
	}
	p.rest(p.other, there, "y0123")
	p.awaitFree()
}

// So many moves may be under way, and no more.
func TestTooManyMoves(t *testing.T) {
	gate := t.TempDir() + "/gate"
	p := twoWorkers(t, nil)
	var all []SpanRequest
	for i := range MaxMoves + 1 {
		all = append(all, p.pause(p.one, models.BatchID(i), 2, fmt.Sprintf("%d await %s", atDescribe, gate)))
	}
	for i, r := range all {
		err := Move(moveRound, p.one.Executor, p.other.Executor, r, 0)
		if (i < MaxMoves) != (err == nil) || err != nil && !errors.Is(err, ErrTooManyRounds) {
			t.Errorf("%d: %v", i, err)
		}
	}
	touch(t, gate)
	for range MaxMoves {
		if s := p.moved(p.one); s.Status != models.SpanDone {
			t.Errorf("%+v", s)
		}
	}
	for _, r := range all[:MaxMoves] {
		p.other.Release(0, r.Span.Batch)
	}
	p.awaitFree()
}

// Workers are killed at random while batches move: each move has one outcome, each batch
// ends with its text or is lost, and no memory stays in use.
func TestKillLoopOfMoves(t *testing.T) {
	const kills = 20
	p := twoWorkers(t, func(o *Options) { o.RestartLimit = 10 * kills })
	random := rand.New(rand.NewPCG(5, 6))
	sides := []*fixture{p.one, p.other}
	done, lost, killed := 0, 0, map[int]bool{}
	for kill := 0; kill < kills; {
		way := random.IntN(2)
		from, to := sides[way], sides[1-way]
		pid := awaitPID(sides[random.IntN(2)])
		awaitPID(from)
		awaitPID(to)
		r := from.whole(0, models.BatchID(1+done+lost), "11 sleep 100us")
		r.Span.End = 2
		if s := from.do(r); s.Status != models.SpanDone {
			lost++
			continue
		}
		r.Span.Start, r.Span.End = 2, fakeOperators
		if err := Move(moveRound, from.Executor, to.Executor, r, 0); err != nil {
			t.Fatal(err)
		}
		if random.IntN(3) == 0 {
			time.Sleep(time.Duration(random.IntN(400)) * time.Microsecond)
			syscall.Kill(pid, syscall.SIGKILL)
			killed[pid] = true
			kill++
		}
		if s := p.moved(from); s.Status != models.SpanDone {
			lost++
			continue
		}
		switch s := to.do(SpanRequest{Span: r.Span}); s.Status {
		case models.SpanDone:
			if got := texts(s)[0]; got != "11 sleep 100us0123" {
				t.Errorf("%q", got)
			}
			done++
		default:
			lost++
		}
	}
	if done == 0 || lost == 0 {
		t.Errorf("%d batches have finished, %d were lost: nothing is tested", done, lost)
	}
	for _, f := range sides {
		for killed[awaitPID(f)] { // nobody has noticed yet
			time.Sleep(time.Millisecond)
		}
	}
	p.awaitFree()
	p.usable()
}
