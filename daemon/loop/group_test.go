package loop

import (
	"os"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap/journal"
	"github.com/overlapd/overlapd/predictor"
)

// groupRig is a loop of two services with a predictor, that runs a round of service 0 alone. Its
// decisions are logged.
func groupRig(t *testing.T) (*rig, *query.Call) {
	t.Helper()
	r := newRig(t, grouping(fakeworkers.Predictor(2)))
	c := mustSubmit(t, r, 0)
	r.workers.Await()
	return r, c
}

// grouping is a rig of two services that overlap by a predictor.
func grouping(f *predictor.File) rigOptions {
	return rigOptions{services: 2, predictor: f, change: func(c *config.Config) { c.Policy, c.Decisions.Log = "overlap", true }}
}

// group lets a group of both services run, and returns a call of each. That of
// service 1 is the more urgent: it takes longer, and if it were the other one's
// it would run only as far as that goes.
func (r *rig) group(first *query.Call) (calls []*query.Call) {
	r.t.Helper()
	r.Ask(func() { // they come at one moment
		longer := mustSubmit(r.t, r, 1)
		calls = []*query.Call{mustSubmit(r.t, r, 0), longer}
	})
	r.sync()
	r.workers.End(models.SpanDone)
	isServed(r.t, r, first)
	if _, spans := r.workers.AwaitRound(); len(spans) != 2 {
		r.t.Fatalf("the round is %v, want a group of two", spans)
	}
	return calls
}

// replays ends the loop, and fails the test unless the decisions that it has logged reproduce.
func (r *rig) replays() {
	r.t.Helper()
	r.stop()
	log, err := os.Open(r.journal)
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	found, err := journal.Replay(r.journal, log, func(*journal.Log, *journal.Record) bool { return true })
	if err != nil {
		r.t.Fatal(err)
	}
	if policy := found.Config.Policy; policy != r.config.Policy || found.Rounds == 0 || found.Torn || found.Lost > 0 {
		r.t.Errorf("replay: policy %s, %d rounds, torn is %v, %d records lost", policy, found.Rounds, found.Torn, found.Lost)
	}
}

// Of a group that was partly lost or failed, the rest is answered, and nothing
// is learned of how long it took.
func TestGroupWithALostSpan(t *testing.T) {
	r, first := groupRig(t)
	calls := r.group(first)
	r.workers.Kill(1)
	r.workers.EndOf(0, models.SpanDone)
	isServed(t, r, calls[0])
	r.workers.Revive(1, fakeworkers.Operators)
	if s := r.workers.Await(); s.Service != 1 || s.Start != 0 {
		t.Errorf("after the loss %v runs", s)
	}
	r.workers.End(models.SpanDone)
	isServed(t, r, calls[1])
	if s := r.shapes(); len(s) > 0 && s[0].Runs > 0 {
		t.Errorf("learned of groups: %+v", s)
	}
	r.replays()
}

// Two services of one model are two models to a predictor: groups of both are
// predicted.
func TestGroupOfOneModelTwice(t *testing.T) {
	f := fakeworkers.Predictor(2)
	f.Features.Models[0].Hash = f.Features.Models[1].Hash
	o := grouping(f)
	o.unready = true
	r := newRig(t, o)
	r.Begin()
	for i := range 2 {
		r.workers.ReviveAs(i, fakeworkers.Operators, fakeworkers.Hash(1, fakeworkers.Operators))
	}
	r.await(learning.Serving)
	first := mustSubmit(t, r, 0)
	r.workers.Await()
	calls := r.group(first)
	r.workers.End(models.SpanDone)
	isServed(t, r, calls...)
}

// A group that cannot even be sent fails all its queries.
func TestGroupThatCannotBeSent(t *testing.T) {
	r, first := groupRig(t)
	calls := []*query.Call{mustSubmit(t, r, 0), mustSubmit(t, r, 1)}
	r.sync()
	r.workers.Be(fakeworkers.Refusing, true)
	r.workers.End(models.SpanDone)
	isServed(t, r, first)
	for _, c := range calls {
		wantError(t, answerOf(t, r, c), 500, "model_failed")
	}
	r.workers.Be(fakeworkers.Refusing, false)
	r.workers.RunsOn(&fakeworkers.Calm)
	isServed(t, r, mustSubmit(t, r, 0), mustSubmit(t, r, 1))
	if r.sync(); !strings.Contains(r.log.String(), "sending a round to the workers failed") {
		t.Errorf("the log has nothing of it: %s", r.log)
	}
	r.replays()
}

// The estimates of groups of several follow what they take.
func TestGroupsTeachThePredictor(t *testing.T) {
	r, first := groupRig(t)
	slow := fakeworkers.Device{Operator: fakeworkers.Calm.Operator, Overlap: 0.8}
	var before, after models.Estimate
	for i := range 41 {
		calls := r.group(first)
		if after = r.seen.estimate(); i == 0 {
			before = after
		}
		r.workers.RunsOn(&slow)
		isServed(t, r, calls...)
		r.workers.RunsOn(nil)
		first = mustSubmit(t, r, 0)
		r.workers.Await()
	}
	if after.Latency <= before.Latency || after.Bound < after.Latency {
		t.Errorf("before %+v, after groups that took longer %+v", before, after)
	}
	r.workers.End(models.SpanDone)
	isServed(t, r, first)
	r.replays()
}

// shapes returns what was learned of groups of several services.
func (r *rig) shapes() (all []status.Shape) {
	r.t.Helper()
	for _, s := range r.now().Predictor.Shapes {
		if s.Source == "network" {
			all = append(all, s)
		}
	}
	return all
}

// The loop feeds the timeline: a group with its decision, and how its queries
// ended.
func TestLoopFeedsTheTimeline(t *testing.T) {
	r, first := groupRig(t)
	calls := r.group(first)
	r.workers.End(models.SpanDone)
	isServed(t, r, calls...)
	p := r.Timeline().Read(0, timeline.PageRounds, nil)
	if len(p.Rounds) != 2 || p.Running != nil {
		t.Fatalf("%+v", p)
	}
	g := p.Rounds[1]
	if len(g.Spans) != 2 || len(g.Candidates) != 2 || !g.Planned || g.End <= g.Start || g.Took <= 0 || g.Spans[0].Of != fakeworkers.Operators || g.Spans[1].Status != "done" {
		t.Errorf("%+v", g)
	}
	for i, want := range []int{2, 1} {
		if s := p.Services[i]; s.Ended != want || s.P50 <= 0 || s.Missed > want {
			t.Errorf("service %d: %+v", i, s)
		}
	}
}
