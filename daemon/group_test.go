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
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap/journal"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// groupRig is a daemon of two services with a predictor, that runs a round of
// service 0 alone. Its decisions are logged.
func groupRig(t *testing.T) (*rig, *query.Call) {
	t.Helper()
	r := startRig(t, rigOptions{services: 2, dir: put(t, fakeworkers.Predictor(2)), change: func(c *config.Config) { c.Decisions.Log = true }})
	r.await("serving")
	c := mustSubmit(t, r.backend, 0)
	r.workers.Await()
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
	r.workers.End(models.SpanDone)
	isServed(r.t, r.backend, first)
	if _, spans := r.workers.AwaitRound(); len(spans) != 2 {
		r.t.Fatalf("the round is %v, want a group of two", spans)
	}
	return calls
}

// replays fails the test unless the decision log of a daemon that has ended
// reproduces.
func (r *rig) replays() {
	r.t.Helper()
	r.stop()
	path := filepath.Join(r.Config().StateDir, journal.FileName)
	log, err := os.Open(path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	found, err := journal.Replay(path, log, func(*journal.Log, *journal.Record) bool { return true })
	if err != nil {
		r.t.Fatal(err)
	}
	if policy := found.Config.Policy; policy != r.Config().Policy || found.Rounds == 0 || found.Torn || found.Lost > 0 {
		r.t.Errorf("replay: policy %s, %d rounds, torn is %v, %d records lost", policy, found.Rounds, found.Torn, found.Lost)
	}
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
			o.dir = put(t, fakeworkers.Predictor(services))
		} else {
			o.fit = func(context.Context, *training.Dataset, map[string][]training.OperatorTimes) (*predictor.File, error) {
				return fakeworkers.Predictor(services), nil
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
func (r *rig) disturb(seed uint64, f *fakeworkers.Workers, over chan struct{}) {
	random := rand.New(rand.NewPCG(seed, 1))
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Duration(random.IntN(100)) * time.Microsecond):
		}
		switch service := random.IntN(len(r.backend.Services())); random.IntN(20) {
		case 0:
			f.Kill(service)
		case 1, 2:
			f.Revive(service, fakeworkers.Operators+random.IntN(8)/7)
		case 3:
			f.End(models.SpanFailed)
		case 4:
			f.RunsOn(&fakeworkers.Calm)
		case 5:
			f.RunsOn(nil)
		default:
			f.End(models.SpanDone)
		}
	}
}
