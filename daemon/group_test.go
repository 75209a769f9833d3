package daemon

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap/journal"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// groupRig is a daemon of two services with a predictor, that runs a round of
// service 0 alone. Its decisions are logged.
func groupRig(t *testing.T) (*rig, *query.Call) {
	t.Helper()
	r := startRig(t, rigOptions{services: 2, dir: put(t, fakeFile(2)), change: func(c *config.Config) { c.Decisions.Log = true }})
	r.await("serving")
	c := mustSubmit(t, r.backend, 0)
	r.workers.await()
	return r, c
}

// group lets a group of both services run, and returns a call of each. That of
// service 1 is the more urgent: it takes longer, and if it were the other one's
// it would run only as far as that goes.
func (r *rig) group(first *query.Call) (calls []*query.Call) {
	r.t.Helper()
	r.backend.Ask(func() { // they come at one moment
		longer := mustSubmit(r.t, r.backend, 1)
		calls = []*query.Call{mustSubmit(r.t, r.backend, 0), longer}
	})
	r.sync()
	r.workers.end(models.SpanDone)
	isServed(r.t, r.backend, first)
	if _, spans := r.workers.awaitRound(); len(spans) != 2 {
		r.t.Fatalf("the round is %v, want a group of two", spans)
	}
	return calls
}

// replays fails the test unless the decision log of a daemon that has ended
// reproduces.
func (r *rig) replays() {
	r.t.Helper()
	r.stop()
	path := filepath.Join(r.config.StateDir, journal.FileName)
	log, err := os.Open(path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	found, err := journal.Replay(path, log, func(*journal.Log, *journal.Record) bool { return true })
	if err != nil {
		r.t.Fatal(err)
	}
	if policy := found.Config.Policy; policy != r.Daemon.config.Policy || found.Rounds == 0 || found.Torn || found.Lost > 0 {
		r.t.Errorf("replay: policy %s, %d rounds, torn is %v, %d records lost", policy, found.Rounds, found.Torn, found.Lost)
	}
}

// shapes returns what was learned of groups of several services.
func (r *rig) shapes() (all []status.Shape) {
	r.t.Helper()
	for _, s := range r.predictor().Shapes {
		if s.Source == "network" {
			all = append(all, s)
		}
	}
	return all
}

func TestGroupIsAnswered(t *testing.T) {
	r, first := groupRig(t)
	calls := r.group(first)
	r.workers.end(models.SpanDone)
	isServed(t, r.backend, calls...)
	if s := r.shapes(); len(s) != 1 || s[0].Runs != 1 || len(s[0].Services) != 2 || s[0].RawMAPE > 5 {
		t.Errorf("learned of groups: %+v", s)
	}
	o, ok := r.backend.FullStatus()
	if !ok || o.Plans.Made == 0 || o.Plans.Kept == 0 || o.Rounds != 2 {
		t.Errorf("no round was chosen ahead: %+v of %d", o.Plans, o.Rounds)
	}
	r.replays()
}

// Of a group that was partly lost or failed, the rest is answered, and nothing
// is learned of how long it took.
func TestGroupWithALostSpan(t *testing.T) {
	r, first := groupRig(t)
	calls := r.group(first)
	r.workers.kill(1)
	r.workers.endOf(0, models.SpanDone)
	isServed(t, r.backend, calls[0])
	r.workers.revive(1, fakeOperators)
	if s := r.workers.await(); s.Service != 1 || s.Start != 0 {
		t.Errorf("after the loss %v runs", s)
	}
	r.workers.end(models.SpanDone)
	isServed(t, r.backend, calls[1])
	if s := r.shapes(); len(s) > 0 && s[0].Runs > 0 {
		t.Errorf("learned of groups: %+v", s)
	}
	r.replays()
}

func TestGroupWithACancelledMember(t *testing.T) {
	r, first := groupRig(t)
	calls := r.group(first)
	calls[1].Service.Backend.Cancel(calls[1])
	r.sync()
	r.workers.endOf(0, models.SpanDone)
	wantError(t, answerOf(t, r.backend, calls[1]), 503, "cancelled")
	isServed(t, r.backend, calls[0])
	r.sync()
	if n := r.workers.held(); n != 0 {
		t.Errorf("the workers hold %d batches", n)
	}
	r.replays()
}

// Two services of one model are two models to a predictor: groups of both are
// predicted.
func TestGroupOfOneModelTwice(t *testing.T) {
	f := fakeFile(2)
	f.Features.Models[0].Hash = f.Features.Models[1].Hash
	r := newRig(t, rigOptions{services: 2, dir: put(t, f)})
	r.turn()
	for i := range 2 {
		r.workers.reviveAs(i, fakeOperators, fakeHash(1, fakeOperators))
	}
	r.await("serving")
	first := mustSubmit(t, r.backend, 0)
	r.workers.await()
	calls := r.group(first)
	r.workers.end(models.SpanDone)
	isServed(t, r.backend, calls...)
}

// Whatever happens to workers and clients while groups are measured, fitted to
// and served, every query gets its one answer, no memory is left, and the log
// reproduces.
func TestGroupsUnderRandomEvents(t *testing.T) {
	const services, clients, each = 3, 6, 60
	for seed := range uint64(4) {
		o := rigOptions{services: services, change: func(c *config.Config) {
			c.Decisions.Log = true
			c.Profile.Groups = 300
			for i := range c.Services {
				c.Services[i].MaxBatch, c.Services[i].QueueLimit = 4, 8
			}
		}}
		if seed%2 == 0 {
			o.dir = put(t, fakeFile(services))
		} else {
			o.fit = func(context.Context, *training.Dataset, map[string][]training.OperatorTimes) (*predictor.File, error) {
				return fakeFile(services), nil
			}
		}
		r := startRig(t, o)
		r.trouble(seed, services, clients, each)
		r.replays()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// trouble has clients send so many queries each, of which some are cancelled, while the
// workers of all devices are disturbed. Every query gets an answer.
func (r *rig) trouble(seed uint64, services, clients, each int) {
	over := make(chan struct{})
	var chaos, all sync.WaitGroup
	for i, f := range r.pool {
		chaos.Go(func() { r.disturb(seed+uint64(100*i), f, over) })
	}
	for client := range clients {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(100+client)))
			for range each {
				c, err := submit(r.t, r.backend, random.IntN(services), time.Duration(1+random.IntN(40))*time.Millisecond)
				if err != nil {
					r.t.Error(err)
					continue
				}
				if random.IntN(4) == 0 {
					time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
					c.Service.Backend.Cancel(c)
				}
				answerOf(r.t, r.backend, c)
			}
		})
	}
	all.Wait()
	close(over)
	chaos.Wait()
}

// disturb lets the workers of a device do this and that until it is over.
func (r *rig) disturb(seed uint64, f *fakeWorkers, over chan struct{}) {
	random := rand.New(rand.NewPCG(seed, 1))
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Duration(random.IntN(100)) * time.Microsecond):
		}
		switch service := random.IntN(len(r.backend.Services())); random.IntN(20) {
		case 0:
			f.kill(service)
		case 1, 2:
			f.revive(service, fakeOperators+random.IntN(8)/7)
		case 3:
			f.end(models.SpanFailed)
		case 4:
			f.runsOn(&calm)
		case 5:
			f.runsOn(nil)
		default:
			f.end(models.SpanDone)
		}
	}
}

// A group that cannot even be sent fails all its queries.
func TestGroupThatCannotBeSent(t *testing.T) {
	r, first := groupRig(t)
	calls := []*query.Call{mustSubmit(t, r.backend, 0), mustSubmit(t, r.backend, 1)}
	r.sync()
	r.workers.refuse(true)
	r.workers.end(models.SpanDone)
	isServed(t, r.backend, first)
	for _, c := range calls {
		wantError(t, answerOf(t, r.backend, c), 500, "model_failed")
	}
	r.workers.refuse(false)
	r.workers.runsOn(&calm)
	r.serves()
	says(t, r.log.String(), "sending a round to the workers failed")
	r.replays()
}

// The estimates of groups of several follow what they take.
func TestGroupsTeachThePredictor(t *testing.T) {
	r, first := groupRig(t)
	slow := fakeDevice{operator: calm.operator, overlap: 0.8}
	var before, after models.Estimate
	for i := range 41 {
		calls := r.group(first)
		if after = r.seen.estimate(); i == 0 {
			before = after
		}
		r.workers.runsOn(&slow)
		isServed(t, r.backend, calls...)
		r.workers.runsOn(nil)
		first = mustSubmit(t, r.backend, 0)
		r.workers.await()
	}
	if after.Latency <= before.Latency || after.Bound < after.Latency {
		t.Errorf("before %+v, after groups that took longer %+v", before, after)
	}
	r.workers.end(models.SpanDone)
	isServed(t, r.backend, first)
	r.replays()
}
