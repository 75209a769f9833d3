package loop

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
)

// stored returns what a loop that has ended left in its state file.
func stored(t *testing.T, dir string) (*training.Dataset, map[string][]training.OperatorTimes) {
	t.Helper()
	file, store := openStore(t, dir)
	defer file.Close()
	d, err := store.Dataset(fakeworkers.DeviceName, nil)
	if err != nil {
		t.Fatal(err)
	}
	operators, err := store.Operators(fakeworkers.DeviceName, d.Models)
	if err != nil {
		t.Fatal(err)
	}
	return d, operators
}

// What an idle daemon measures is in the state file, right and complete.
func TestMeasuresWhileIdle(t *testing.T) {
	r := newRig(t, rigOptions{measures: true, services: 3, device: &fakeworkers.Calm})
	p := r.await("solo")
	says(t, p.Reason, "24 of 24 measurements are made; make a predictor from them with overlapd train")
	if n := r.workers.Held(); n != 0 {
		t.Errorf("the workers hold %d batches", n)
	}
	r.serves()
	r.stop()
	d, operators := stored(t, r.dir)
	spans := fakeworkers.Rows(t, d, &fakeworkers.Calm)
	// Whole models, sampled groups of one, and of two.
	if len(d.Rows) != 6+12 || spans[1] < 7 || spans[2] < 10 {
		t.Errorf("%d rows, by spans %v", len(d.Rows), spans)
	}
	for i, m := range d.Models {
		if m != fakeworkers.Model(i, fakeworkers.Operators) {
			t.Errorf("model %+v", m)
		}
		times := operators[m.Name]
		if len(times) != 2 {
			t.Fatalf("%d operator times of %s", len(times), m.Name)
		}
		for _, o := range times {
			for op, micros := range o.Micros {
				if want := float64(100 * (i + 1) * o.Size); math.Abs(micros-want) > 0.01 {
					t.Errorf("operator %d of %s with batch size %d takes %v µs, want %v", op, m.Name, o.Size, micros, want)
				}
			}
		}
	}
}

// A query that comes while a group is measured does not wait for its end, and
// what it disturbed is measured again once it has been quiet.
func TestQueryWhileMeasuring(t *testing.T) {
	r := newRig(t, rigOptions{measures: true, services: 2})
	round, before := r.workers.AwaitRound()
	if round < measuringIDs {
		t.Fatalf("round %d is not one that measures", round)
	}
	c := mustSubmit(t, r, 0)
	for round >= measuringIDs {
		round, _ = r.workers.AwaitRound()
	}
	if n := r.workers.Held(); n != 1 {
		t.Errorf("the workers hold %d batches, want that of the query", n)
	}
	arrival := c.Arrival
	r.workers.End(models.SpanDone)
	isServed(t, r, c)
	round, again := r.workers.AwaitRound()
	if quiet := time.Since(arrival); quiet < learning.Quiet {
		t.Errorf("measuring goes on %v after a query came", quiet)
	}
	if round < measuringIDs || len(again) != 1 || len(before) != 1 {
		t.Fatalf("round %d of %v after %v", round, again, before)
	}
	again[0].Batch = before[0].Batch
	if again[0] != before[0] {
		t.Errorf("after %v comes %v", before, again)
	}
	r.workers.RunsOn(&fakeworkers.Calm)
	says(t, r.await("solo").Reason, "20 of 20")
}

// Between two rounds of a step a query goes first, even if nothing could be
// stopped.
func TestQueryBetweenTheRoundsOfAStep(t *testing.T) {
	r := newRig(t, rigOptions{measures: true, services: 2})
	for {
		if _, spans := r.workers.AwaitRound(); spans[0].End == 1 {
			break // the first of an operator each
		}
		r.workers.End(models.SpanDone)
		r.sync()
	}
	var c *query.Call
	r.Ask(func() { // the query and the outcome come at once
		c = mustSubmit(t, r, 1)
		r.workers.End(models.SpanDone)
	})
	for {
		round, spans := r.workers.AwaitRound()
		if round < measuringIDs {
			break
		}
		if spans[0].Start > 0 {
			t.Fatalf("%v runs while a query waits", spans)
		}
	}
	r.workers.RunsOn(&fakeworkers.Calm)
	isServed(t, r, c)
	says(t, r.await("solo").Reason, "20 of 20")
}

// While a group is measured, no passing of a deadline makes the loop run in
// circles.
func TestDeadlineThatPassesWhileMeasuring(t *testing.T) {
	r := newRig(t, rigOptions{measures: true, services: 2})
	r.workers.Await()                    // a group is measured
	r.workers.Be(fakeworkers.Deaf, true) // and cannot be stopped
	c, err := submit(t, r, 0, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond)
	before := r.seen.woken()
	time.Sleep(20 * time.Millisecond)
	if more := r.seen.woken() - before; more > 1 { // a heartbeat
		t.Errorf("the loop is woken %d times though it can only wait", more)
	}
	r.workers.End(models.SpanDone)
	wantError(t, answerOf(t, r, c), 503, "deadline_passed")
}

// A worker that is lost in a measured round costs no measurement, and nothing
// runs until it is back.
func TestWorkerLostWhileMeasuring(t *testing.T) {
	r := newRig(t, rigOptions{measures: true, services: 2})
	_, spans := r.workers.AwaitRound()
	for range 3 { // not one of these losses is of the same measurement
		r.workers.Hold()
		r.workers.Kill(int(spans[0].Service))
		r.sync()
		if r.workers.End(models.SpanDone) {
			t.Fatal("a round is measured on a worker that is lost")
		}
		if n := r.workers.Arena(spans[0].Service).Used(); n != 0 {
			t.Errorf("%d bytes of inputs are in use", n)
		}
		r.workers.LetGo()
		r.workers.Revive(int(spans[0].Service), fakeworkers.Operators)
		for first := spans; spans[0].Size == first[0].Size && spans[0].Service == first[0].Service; {
			_, spans = r.workers.AwaitRound()
			r.workers.End(models.SpanDone)
			r.sync()
		}
		_, spans = r.workers.AwaitRound()
	}
	r.workers.RunsOn(&fakeworkers.Calm)
	says(t, r.await("solo").Reason, "20 of 20 measurements are made;")
	r.stop()
	if d, _ := stored(t, r.dir); len(d.Rows) != 4+12 {
		t.Errorf("%d rows", len(d.Rows))
	}
}

// In a group that loses one of its workers, the others are freed.
func TestWorkerOfAGroupLostWhileMeasuring(t *testing.T) {
	r := newRig(t, rigOptions{measures: true, services: 2})
	var spans []models.Span
	for {
		if _, spans = r.workers.AwaitRound(); len(spans) == 2 {
			break
		}
		r.workers.End(models.SpanDone)
		r.sync()
	}
	r.workers.Kill(1)
	r.workers.EndOf(0, models.SpanDone)
	r.sync()
	if n := r.workers.Held(); n != 0 {
		t.Errorf("the workers hold %d batches", n)
	}
	r.workers.RunsOn(&fakeworkers.Calm)
	r.workers.Revive(1, fakeworkers.Operators)
	says(t, r.await("solo").Reason, "20 of 20 measurements are made;")
}

// A model that fails on one batch size is measured on all others, and the skip
// is told.
func TestModelThatFailsOnOneSize(t *testing.T) {
	r := newRig(t, rigOptions{measures: true, services: 2, device: &fakeworkers.Calm, prepare: func(f *fakeworkers.Workers) { f.FailOn(1, 2, true) }})
	says(t, r.await("solo").Reason, " of 20 measurements are made, ", " are impossible;")
	says(t, r.log.String(), `"service":"s1","size":2,"seq_len":0,"message":"measurement failed"`)
	report, _ := r.MeasuringReport()
	if len(report.Progress.Skips) == 0 || report.Progress.Skips[0].Model != "s1" || report.Progress.Skips[0].Size != 2 || !strings.Contains(fmt.Sprint(report.Progress.Skips[0].Err), "did not run to their end") {
		t.Errorf("skips: %+v", report.Progress.Skips)
	}
	r.serves()
	r.stop()
	d, operators := stored(t, r.dir)
	fakeworkers.Rows(t, d, &fakeworkers.Calm)
	for _, row := range d.Rows {
		for _, s := range row.Group.Spans {
			if d.Models[s.Service].Name == "s1" && s.Size == 2 {
				t.Errorf("a row of %v", row.Group)
			}
		}
	}
	if len(d.Rows) < 8 || len(operators["s0"]) != 2 || len(operators["s1"]) != 1 {
		t.Errorf("%d rows, operator times %v", len(d.Rows), operators)
	}
}

// A daemon that ends while it measures goes on at its next start: nothing is
// lost, nothing is measured twice.
func TestMeasuringGoesOnAfterARestart(t *testing.T) {
	const groups, plan = 150, 4 + 4 + 150
	o := rigOptions{measures: true, services: 2, device: &fakeworkers.Calm, dir: t.TempDir(), groups: groups}
	r := newRig(t, o)
	done := func() int {
		if m := r.now().Predictor.Measuring; m != nil {
			return m.Done
		}
		return 0
	}
	for r.now().Predictor.Phase == "measuring" && done() < 20 {
		time.Sleep(100 * time.Microsecond)
	}
	r.stop()
	d, _ := stored(t, o.dir)
	first := len(d.Rows)
	if first == 0 || first > groups {
		t.Fatalf("%d rows at first", first)
	}
	r = newRig(t, o)
	says(t, r.await("solo").Reason, fmt.Sprintf("%d of %d", plan, plan))
	r.stop()
	d, _ = stored(t, o.dir)
	if fakeworkers.Rows(t, d, &fakeworkers.Calm); len(d.Rows) != 4+groups {
		t.Errorf("%d rows after %d at first, want %d", len(d.Rows), first, 4+groups)
	}
}

// A service that is given up keeps the others from nothing.
func TestServiceGivenUpWhileMeasuring(t *testing.T) {
	r := newRig(t, rigOptions{measures: true, services: 3})
	_, spans := r.workers.AwaitRound()
	r.workers.Fail(0)
	r.sync()
	r.workers.RunsOn(&fakeworkers.Calm)
	says(t, r.await("solo").Reason, "20 of 20 measurements are made;")
	r.stop()
	d, _ := stored(t, r.dir)
	if len(d.Models) != 2 || d.Models[0].Name != "s1" {
		t.Errorf("measured: %v", d.Models)
	}
	if spans[0].Service != 0 {
		t.Error("the service that was given up was not the one that was measured")
	}
}

// Nor does one that never came up.
func TestServiceThatNeverLoads(t *testing.T) {
	r := newRig(t, rigOptions{measures: true, services: 3, device: &fakeworkers.Calm, unready: true})
	r.Begin()
	r.workers.Revive(0, fakeworkers.Operators)
	r.workers.Revive(2, fakeworkers.Operators)
	if p := r.now().Predictor; p.Phase != "loading" {
		t.Errorf("%s before all is known", p.Phase)
	}
	r.workers.Fail(1)
	says(t, r.await("solo").Reason, "20 of 20")
}

// A model that the protocol cannot carry is not waited for, and its service
// says so.
func TestModelThatCannotBeServed(t *testing.T) {
	r := newRig(t, rigOptions{measures: true, services: 3, device: &fakeworkers.Calm, prepare: func(f *fakeworkers.Workers) {
		f.Takes(1, models.TensorSpec{Name: "X", Type: models.Type{Kind: models.KindSequence}})
	}})
	says(t, r.await("solo").Reason, "20 of 20")
	says(t, r.log.String(), "the model cannot be served")
	wantError(t, answerOf(t, r, mustSubmit(t, r, 1)), 503, "given_up")
}

// A model whose inputs cannot be made up is left out.
func TestInputsThatCannotBeMadeUp(t *testing.T) {
	r := newRig(t, rigOptions{measures: true, services: 3, device: &fakeworkers.Calm, prepare: func(f *fakeworkers.Workers) {
		f.Takes(1, models.TensorSpec{Name: "X", Type: models.TensorType(models.String, models.Dim{Value: -1}, models.Dim{Value: 16})})
	}})
	says(t, r.await("solo").Reason, " of 24 measurements are made, ", " are impossible;")
	says(t, strings.ReplaceAll(r.log.String(), `\"`, `"`), `input "X" is`, "for which no data can be generated")
	r.stop()
	if d, _ := stored(t, r.dir); len(d.Models) != 2 {
		t.Errorf("measured: %v", d.Models)
	}
}

// Nothing holds up the end of a daemon that measures.
func TestStopWhileMeasuring(t *testing.T) {
	for _, device := range []*fakeworkers.Device{nil, &fakeworkers.Calm} {
		r := newRig(t, rigOptions{measures: true, services: 2, device: device, groups: 500})
		if device == nil {
			r.workers.AwaitRound()
		}
		r.stop()
		if log := r.log.String(); len(log) == 0 || contains(log, `"level":"warn"`, `"level":"error"`) {
			t.Errorf("log:\n%s", log)
		}
	}
}

// stuff gives the keeper more than it can take, which it does not do before
// hold is closed.
func (r *rig) stuff(hold chan struct{}) {
	r.t.Helper()
	begun := make(chan struct{})
	r.keeper.Keep("waiting", func(*training.Store) error { close(begun); <-hold; return nil })
	<-begun
	for !r.keeper.Full() {
		r.keeper.Keep("waiting", func(*training.Store) error { return nil })
	}
}

// While the keeper cannot take more, nothing is measured, and so nothing lost.
func TestMeasuringWaitsForTheKeeper(t *testing.T) {
	r := newRig(t, rigOptions{measures: true, services: 2})
	r.workers.AwaitRound()
	hold := make(chan struct{})
	r.stuff(hold)
	if r.keeper.Keep("one too many", nil) {
		t.Error("a full keeper takes a job")
	}
	says(t, r.log.String(), "one too many")
	r.workers.End(models.SpanDone)
	time.Sleep(learning.Quiet + learning.Quiet/2) // then the next would be due
	if n := len(r.workers.Sent()); n != 1 {
		t.Errorf("%d rounds are measured that could not be kept", n-1)
	}
	close(hold)
	r.workers.RunsOn(&fakeworkers.Calm)
	says(t, r.await("solo").Reason, "20 of 20")
	r.stop()
	if d, _ := stored(t, r.dir); len(d.Rows) != 4+12 {
		t.Errorf("%d rows", len(d.Rows))
	}
}

// The other way round: a keeper that cannot even read is told.
func TestKeeperTooFullToRead(t *testing.T) {
	r := newRig(t, rigOptions{measures: true, services: 2, device: &fakeworkers.Calm, unready: true})
	hold := make(chan struct{})
	r.stuff(hold)
	r.begin()
	says(t, r.await("solo").Reason, "the state file is too slow")
	r.serves()
	close(hold)
}

func contains(text string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// Under a load that never pauses rounds are measured between those of queries. They are
// not stopped for a query; but one that does not end holds nobody up for longer than its
// target allows.
func TestRoundThatHangsUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds until the daemon measures between queries")
	}
	r := newRig(t, rigOptions{measures: true, services: 2, change: func(c *config.Config) {
		c.Services[0].Target, c.Services[1].Target = 2*time.Second, 2*time.Second
	}})
	r.workers.Be(fakeworkers.Endless, true)
	var waits *query.Call // for a round that does not end
	for begin := time.Now(); waits == nil; time.Sleep(learning.Quiet / 10) {
		c := mustSubmit(t, r, 1)
		round, spans := r.workers.AwaitRound()
		waited := time.Since(begin)
		if round >= measuringIDs && spans[0].Service == 0 && waited > 4*time.Second {
			waits = c
			break
		}
		for ; round >= measuringIDs; round, _ = r.workers.AwaitRound() {
			r.workers.End(models.SpanDone)
			r.sync()
		}
		r.workers.End(models.SpanDone)
		isServed(t, r, c)
		if waited > 15*time.Second {
			t.Fatal("nothing is measured between queries")
		}
	}
	r.workers.Be(fakeworkers.Deaf, true)
	r.workers.AwaitApart(1)
	if _, spans := r.workers.AwaitRound(); spans[0].Service != 1 {
		t.Errorf("%v runs", spans)
	}
	r.workers.End(models.SpanDone)
	isServed(t, r, waits)
	r.workers.EndApart(models.SpanStopped)
	r.workers.RunsOn(&fakeworkers.Calm)
	r.serves()
}

// A measurement that does not end when a query comes does not keep it waiting.
func TestMeasurementIsSetApart(t *testing.T) {
	r := newRig(t, rigOptions{measures: true, services: 2})
	r.workers.Be(fakeworkers.Deaf, true)
	r.workers.Be(fakeworkers.Endless, true)
	_, spans := r.workers.AwaitRound()
	busy := spans[0].Service
	c := mustSubmit(t, r, int(1-busy))
	r.workers.AwaitApart(len(spans))
	if len(spans) == 1 {
		for r.workers.Await().Service == busy {
			time.Sleep(time.Millisecond)
		}
		r.workers.End(models.SpanDone)
		isServed(t, r, c)
	}
	for range spans {
		r.workers.EndApart(models.SpanStopped)
	}
	r.sync()
	c = mustSubmit(t, r, int(busy))
	for r.workers.Await().Service != busy {
		time.Sleep(time.Millisecond)
	}
	r.workers.End(models.SpanDone)
	isServed(t, r, c)
}

// A group that is measured while a worker begins to load ends and is run again,
// and nothing is measured until the worker is loaded or lost.
func TestLoadingAndMeasuring(t *testing.T) {
	r := newRig(t, rigOptions{measures: true, services: 2})
	r.workers.Await() // a group is measured
	r.workers.Tell(executor.Event{Kind: executor.WorkerProgress, Service: 1, Phase: "load"})
	r.sync()
	r.workers.End(models.SpanDone)
	rounds := len(r.workers.Sent())
	time.Sleep(learning.Quiet + learning.Quiet/2)
	if more := len(r.workers.Sent()) - rounds; more > 0 || r.now().Predictor.Measuring == nil {
		t.Errorf("%d groups are measured while a worker loads", more)
	}
	r.workers.Tell(executor.Event{Kind: executor.WorkerLost, Service: 1, Err: executor.ErrExited})
	r.workers.Tell(executor.Event{Kind: executor.WorkerStopped, Service: 1})
	if o, ok := r.FullStatus(); !ok || len(o.Loading) > 0 {
		t.Error("a lost worker loads")
	}
}
