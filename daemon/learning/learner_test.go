package learning

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/daemon/statefile"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

const operators = 2

// rig drives a Learner as the scheduler goroutine does, on a device that takes
// 100 µs for an operator, with a state file and a clock of its own.
type rig struct {
	*Learner
	t       *testing.T
	now     time.Duration
	solo    *predictor.Solo
	store   *training.Store
	entered []string
	fit     *Fit
	stops   int
	skipped training.Progress
}

func newRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	db, err := statefile.Open(filepath.Join(t.TempDir(), "state.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	store, err := training.NewStore(db)
	if err != nil {
		t.Fatal(err)
	}
	solo, err := predictor.NewSolo(operators, operators, operators)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Policy: "overlap", OnStart: true, CanFit: true, Groups: 4, Repeats: 3, Spans: 2, Seed: 1}
	if change != nil {
		change(&o)
	}
	return &rig{t: t, Learner: New(o, predictor.New(solo), solo), solo: solo, store: store, now: time.Second}
}

// world is a device with two models, or more. Their services are not sorted by
// name.
func world(more ...string) World {
	w := World{Device: "test"}
	for i, name := range append([]string{"b", "a"}, more...) {
		m := training.Model{Name: name, Hash: "hash of " + name, Operators: operators}
		w.Models = append(w.Models, predictor.Served{Service: name, Model: name, Hash: m.Hash, Operators: m.Operators})
		w.Services = append(w.Services, Service{ID: models.ServiceID(i), Model: m, Target: time.Second, Sizes: []int{1}})
	}
	w.Models = append(w.Models, make([]predictor.Served, 3-len(w.Models))...) // the places of others
	return w
}

// do does what the Learner wants done.
func (r *rig) do() {
	r.t.Helper()
	w := r.Work()
	if w.Stop {
		r.stops++
	}
	if w.Entered {
		r.entered = append(r.entered, r.Report().Phase)
	}
	for _, job := range w.Store {
		if err := job.Do(r.store); err != nil {
			r.t.Errorf("%s: %v", job.What, err)
		}
	}
	if len(w.Measured.Skips) > 0 {
		r.skipped = w.Measured
	}
	if w.Fit != nil {
		r.fit = w.Fit
	}
	if w.Read != nil {
		found, _ := w.Read.From(r.store)
		r.Found(r.now, found)
		r.do()
	}
}

// bind gives the Learner the models of a world.
func (r *rig) bind(w World) {
	r.Changed()
	r.Bind(w)
	r.do()
}

// step measures a step. It reports false if there is none.
func (r *rig) step(fault error) bool {
	r.t.Helper()
	rounds := r.Next()
	r.do()
	if len(rounds) == 0 {
		return false
	}
	var all []Timing
	for _, g := range rounds {
		r.Began(r.now)
		took := lasts(g)
		r.now += took
		r.Ended(r.now, false)
		all = append(all, Timing{Latency: took})
	}
	r.Finished(all, rounds[0].Spans[0].Service, fault)
	r.do()
	return true
}

// lasts returns what a group takes.
func lasts(g models.Group) (took time.Duration) {
	for _, s := range g.Spans {
		took += 100 * time.Microsecond * time.Duration(s.End-s.Start)
	}
	return took
}

func (r *rig) stands(phase string, parts ...string) {
	r.t.Helper()
	report := r.Report()
	if report.Phase != phase {
		r.t.Errorf("%v: %s; want %v", report.Phase, report.Reason, phase)
	}
	for _, part := range parts {
		if !strings.Contains(report.Reason, part) {
			r.t.Errorf("%q is not in %q", part, report.Reason)
		}
	}
}

// From nothing to a predictor: measure, fit, serve; and the models that come next
// are served with what is stored.
func TestFromMeasuringToServing(t *testing.T) {
	r := newRig(t, nil)
	r.bind(world())
	r.stands(Measuring, "batches run one at a time")
	if !slices.Equal(r.Services(), []models.ServiceID{1, 0}) || !r.Pending() {
		t.Errorf("services %v are measured", r.Services())
	}
	r.Arrived(r.now)
	if r.DueAt(true) != r.now+Quiet {
		t.Errorf("due at %v", r.DueAt(true))
	}
	for r.step(nil) {
	}
	r.stands(Training, "8 of 8 measurements are made")
	if r.fit == nil || len(r.fit.Data.Rows) != 2+4 || len(r.fit.Operators["a"]) != 1 {
		t.Fatalf("to be fitted: %+v", r.fit)
	}
	f := file("a", "b", "c")
	r.Fitted(r.fit, f, nil, world())
	r.do()
	r.stands(Serving, "trained on 1000 groups")
	if stored, err := r.store.Predictors(); err != nil || len(stored) != 1 {
		t.Errorf("%d predictors are stored: %v", len(stored), err)
	}
	if reason := r.Report().Reason; strings.Contains(reason, "more groups") {
		t.Errorf("a good predictor: %s", reason)
	}
	r.bind(world())
	if want := []string{"measuring", "training", "serving"}; !slices.Equal(r.entered, want) {
		t.Errorf("phases %q, want %q", r.entered, want)
	}
	w := world("c")
	w.Models[0].Hash, w.Services[0].Model.Hash, w.Reloaded = "another", "another", true
	r.bind(w)
	r.stands(Serving, "it does not cover b")
	if report := r.Report(); !strings.Contains(report.Remedy, "restart overlapd, which then measures groups while no query arrives and fits another predictor; or ") {
		t.Errorf("remedy: %s", report.Remedy)
	}
}

// A predictor that errs much says what would make it better.
func TestPoorPredictor(t *testing.T) {
	f := file("a", "b")
	f.Test.MAPE = 24.7
	r := newRig(t, func(o *Options) { o.Stored = []*predictor.File{f} })
	r.bind(world())
	r.stands(Serving, "error 24.7 %; more groups would lower the error: stop overlapd, run overlapd profile --groups ")
}

// What goes wrong ends where batches run one at a time, and says why.
func TestNoPredictor(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		why    string
	}{
		"policy":    {func(o *Options) { o.Policy = "edf" }, "edf runs one batch at a time"},
		"emulated":  {func(o *Options) { o.Emulated = true }, "an emulated device is not measured"},
		"unwanted":  {func(o *Options) { o.OnStart = false }, "make one with overlapd profile"},
		"refused":   {func(o *Options) { o.File, o.Refused = "x", errors.New("no such file") }, "rejected: no such file"},
		"other":     {func(o *Options) { o.File, o.Configured = "x", file("c", "d") }, "the configured predictor was rejected"},
		"too few":   {nil, "at least two services"},
		"slow file": {nil, "cannot be used: it is slow"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.change)
			w := world()
			switch name {
			case "policy":
				if r.Changed(); r.Stale() {
					t.Error("it wants models")
				}
				r.stands(Solo, c.why)
				return
			case "too few":
				w.Services[1].GivenUp = true
			case "slow file":
				r.Bind(w)
				read := r.Work().Read
				r.Found(r.now, read.Not(errors.New("it is slow")))
			}
			if name != "slow file" {
				r.bind(w)
			}
			r.stands(Solo, c.why)
			if r.Next() != nil {
				t.Error("something is measured")
			}
		})
	}
}

// What was begun for other models comes too late.
func TestLateNewsIsIgnored(t *testing.T) {
	r := newRig(t, nil)
	r.Bind(world())
	late := r.Work().Read
	r.bind(world())
	found, _ := late.From(r.store)
	r.session.Cold(0)
	before := r.session
	if r.Found(r.now, found); r.session != before {
		t.Error("a session for other models is taken")
	}
	r.Next()
	r.bind(world()) // while a step runs, which is told to stop
	if r.stops != 2 {
		t.Errorf("%d stops", r.stops)
	}
	r.Finished([]Timing{{Latency: time.Second}}, 0, nil)
	if p := r.Report().Progress; p.Done != 0 || p.Spent != 0 {
		t.Errorf("a step for other models counts: %+v", p)
	}
	for r.step(nil) {
	}
	fit := r.fit
	r.Stop()
	r.do()
	r.Fitted(fit, file("a", "b"), nil, world())
	r.stands(Training)
}

// A step that queries disturb is run again; one that fails is left out and told.
func TestStepsThatFail(t *testing.T) {
	r := newRig(t, func(o *Options) { o.CanFit = false })
	r.bind(world())
	first := r.Next()
	r.Finished(nil, 0, ErrDisturbed)
	if d := cmp.Diff(first[0].Spans[0].Size, r.Next()[0].Spans[0].Size); d != "" {
		t.Error(d)
	}
	r.Finished(nil, 0, ErrDisturbed)
	broken := errors.New("it does not run")
	for r.step(broken) {
	}
	r.stands(Solo, "8 are impossible", "make a predictor from them with overlapd train")
	if len(r.skipped.Skips) == 0 || !errors.Is(r.skipped.Skips[0].Err, broken) || r.skipped.Skips[0].Model == "" {
		t.Errorf("skips %+v", r.skipped.Skips)
	}
}

// Where groups have one span none is predicted, and they are measured only on demand.
func TestAlone(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Alone = "a reason" })
	r.Changed()
	r.stands(Solo, "a reason")
	if r.Stale() {
		t.Error("a predictor is to be chosen")
	}
	r.MeasureOnly(time.Hour)
	r.stands(Loading)
	if !r.Stale() {
		t.Error("nothing is to be measured")
	}
	r = newRig(t, func(o *Options) { o.Alone, o.Policy = "a reason", "edf" })
	r.MeasureOnly(time.Hour)
	r.stands(Solo, "the policy edf runs one batch at a time")
}

// Measuring ends when its time is spent; overlapd profile measures also where
// there is a predictor, and fits none.
func TestMeasureOnly(t *testing.T) {
	r := newRig(t, func(o *Options) { o.OnStart, o.Stored = false, []*predictor.File{file("a", "b")} })
	r.MeasureOnly(2 * time.Millisecond)
	r.bind(world())
	for r.step(nil) {
	}
	r.stands(Solo, "and their time, 2ms, has passed")
	if p := r.Report().Progress; p.Done == 0 || p.Done == p.Total {
		t.Errorf("progress %+v", p)
	}
}

// What is to be done depends on where the predictor comes from, and on whether a
// start would take it again.
func TestRemedyOfUnknownServices(t *testing.T) {
	for name, tt := range map[string]struct {
		unknown  []string
		file     string
		emulated bool
		fits     bool
		want     string
	}{
		"none":                     {nil, "", false, true, ""},
		"replaced":                 {[]string{"b"}, "", false, true, "restart overlapd, which then measures groups while no query arrives and fits another predictor; or "},
		"added":                    {[]string{"new"}, "", false, true, "stop overlapd, run overlapd profile"},
		"replaced, no training":    {[]string{"b"}, "", false, false, "stop overlapd, run overlapd profile"},
		"a predictor of one's own": {[]string{"b"}, "x", false, true, "name the new file in predictor.file"},
		"emulated":                 {[]string{"b"}, "x", true, false, "to data that has them"},
	} {
		l := &Learner{stands: report{Unknown: tt.unknown, File: file("a", "b")}}
		l.options = Options{File: tt.file, Emulated: tt.emulated, CanFit: tt.fits, OnStart: true}
		if got := l.remedy(); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: the remedy is %q, want %q in it", name, got, tt.want)
		}
	}
}

// While queries may come, batches that would hold one up for too long are not
// measured; the smallest always is.
func TestSubjectsWhileServing(t *testing.T) {
	r := newRig(t, nil)
	served := world().Services
	served[0].Target, served[0].Sizes = time.Second, []int{1, 2}
	served[1].Target, served[1].Sizes = 400*time.Millisecond, []int{2, 4, 8}
	for service, perItem := range []int64{60e6, 20e6} { // nanoseconds
		for size := int64(1); size <= 8; size *= 2 {
			each := perItem * size / operators
			if err := r.solo.SetOperators(models.ServiceID(service), int(size), 0, []int64{each, each}); err != nil {
				t.Fatal(err)
			}
		}
	}
	sizes := func() (found [][]int) {
		subjects := r.subjects(served)
		for _, s := range subjects {
			found = append(found, s.Sizes)
		}
		return found
	}
	// Half of the least target for two spans: 100 ms each.
	if d := cmp.Diff([][]int{{2, 4}, {1}}, sizes()); d != "" {
		t.Error(d)
	}
	r.MeasureOnly(0)
	if d := cmp.Diff([][]int{{2, 4, 8}, {1, 2}}, sizes()); d != "" {
		t.Error(d)
	}
}

// file is a predictor that knows some models of the rig.
func file(names ...string) *predictor.File {
	f := &predictor.File{
		Format: predictor.Format, Device: "test", Created: time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC),
		Recipe: "test", Rows: 1000, Output: predictor.OutputMicros,
		Features: predictor.Features{Set: predictor.FeaturesModel, Spans: 2},
		Test:     predictor.Errors{Rows: 100, MAPE: 3, Quantiles: predictor.Quantiles{P01: 0.9, P50: 1, P90: 1.05, P95: 1.07, P99: 1.1}},
	}
	for _, name := range names {
		m := predictor.FeatureModel{Name: name, Hash: "hash of " + name, Operators: operators, MaxSize: 4}
		for _, size := range []int{1, 4} {
			m.Costs = append(m.Costs, predictor.CostCell{Size: size, Micros: []float64{100, 100}, Work: []float64{60, 60}})
		}
		f.Features.Models = append(f.Features.Models, m)
	}
	width := f.Features.Width()
	f.Layers = []predictor.Layer{{Inputs: width, Outputs: 1, Weights: make([]float32, width), Bias: []float32{1}}}
	return f
}

// under drives a Learner as the loop does, while queries come at constant gaps and
// each keeps the device busy for so long. Rounds take what the rig says, stretched. It
// returns how long rounds ran for which queries had to wait, and the longest of these.
func (r *rig) under(gap, busy time.Duration, stretch int) (pressed, longest time.Duration) {
	r.t.Helper()
	began, arrives, waiting := r.now, r.now, 0
	var rounds []models.Group
	var took []Timing
	for r.Report().Phase == Measuring && r.now < began+time.Hour {
		for ; arrives <= r.now; arrives += gap {
			r.Arrived(arrives)
			waiting++
		}
		if due := r.DueAt(waiting == 0); due > r.now {
			if waiting > 0 {
				waiting--
				r.now += busy
			} else {
				r.now = min(arrives, due)
			}
			continue
		}
		if len(rounds) == 0 {
			took = nil
			if rounds = r.Next(); len(rounds) == 0 {
				r.do()
				break
			}
		}
		lasted := time.Duration(stretch) * lasts(rounds[0])
		until := r.Began(r.now)
		queriesWait := until > r.now
		stopped := !queriesWait && arrives < r.now+lasted
		if queriesWait && until-r.now > time.Second/2 {
			r.t.Errorf("a query may wait for %v of its target of a second", until-r.now)
		}
		if stopped {
			lasted = arrives - r.now
		}
		r.now += lasted
		r.Ended(r.now, stopped)
		if queriesWait {
			pressed, longest = pressed+lasted, max(longest, lasted)
		}
		took, rounds = append(took, Timing{Latency: lasted}), rounds[1:]
		switch {
		case stopped:
			rounds = nil
			r.Finished(nil, -1, ErrDisturbed)
		case len(rounds) == 0:
			r.Finished(took, -1, nil)
		}
		r.do()
	}
	return pressed, longest
}

// Whatever the load, there is enough for a predictor in the end: also where the time to
// measure is spent long before, where every moment of quiet is cut short, and where there
// is none.
func TestMeasuresEnoughUnderLoad(t *testing.T) {
	const stretch = 100 // an operator takes 10 ms
	for name, c := range map[string]struct{ gap, busy time.Duration }{
		"quiet moments":         {time.Second, 100 * time.Millisecond},
		"that are too short":    {Quiet + 5*time.Millisecond, 10 * time.Millisecond},
		"none":                  {50 * time.Millisecond, 20 * time.Millisecond},
		"the device never idle": {20 * time.Millisecond, 19 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Groups, o.Limit = 300, time.Second })
			r.bind(world())
			began := r.now
			pressed, longest := r.under(c.gap, c.busy, stretch)
			if r.stands(Training, "has passed"); r.fit == nil {
				t.Fatalf("after %v nothing is fitted: %+v", r.now-began, r.Report())
			}
			if n := len(r.fit.Data.Rows); n < training.LeastRows || n > training.LeastRows+10 {
				t.Errorf("%d rows to fit, want %d", n, training.LeastRows)
			}
			if share := pressed.Seconds() / (r.now - began).Seconds(); share > busyShare {
				t.Errorf("queries had to wait in %.0f %% of the time", 100*share)
			}
			if most := 2 * operators * stretch * 100 * time.Microsecond; longest > most {
				t.Errorf("a query may have waited for %v, one round takes %v at most", longest, most)
			}
			if c.gap < Quiet && pressed == 0 {
				t.Error("nothing was measured between queries")
			}
		})
	}
}

// While too little is measured for a predictor and the time for it is spent, the reason
// says that, and what helps.
func TestSaysWhatHelps(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Groups, o.Limit = 300, time.Millisecond })
	r.bind(world())
	for range 40 {
		r.step(nil)
	}
	r.stands(Measuring, "in 1ms fewer than the 80", "less load", "overlapd profile")
	if !slices.Equal(r.entered, []string{"measuring", "measuring"}) {
		t.Errorf("the log has %q", r.entered)
	}
}

// A fit that fails is no end as long as there is something to measure.
func TestMeasuresOnAfterAFitThatFails(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Groups, o.Limit = 150, time.Millisecond })
	r.bind(world())
	fits := 0
	for r.Report().Phase == Measuring {
		for r.step(nil) {
		}
		fits++
		r.Fitted(r.fit, nil, errors.New("too noisy"), world())
		r.do()
		if r.Report().Phase == Measuring {
			r.stands(Measuring, "training failed: too noisy, so batches run one at a time")
		}
	}
	if r.stands(Solo, "too noisy"); fits < 2 || len(r.fit.Data.Rows) != 2+150 {
		t.Errorf("%d fits, the last of %d rows", fits, len(r.fit.Data.Rows))
	}
}

// A step that was interrupted by queries starts again if a worker was lost meanwhile.
// Stopping it while none of its rounds is running does not keep anything from being
// measured later.
func TestInterruptedSteps(t *testing.T) {
	r := newRig(t, nil)
	r.bind(world())
	for len(r.Next()) < 2 {
		r.step(nil)
	}
	r.Began(r.now)
	r.Ended(r.now, false)
	if r.Lost() {
		t.Error("nothing is lost yet")
	}
	r.Cold(0)
	if !r.Lost() {
		t.Error("a worker was started anew")
	}
	r.Finished(nil, -1, ErrDisturbed)
	r.Next()
	if r.Lost() {
		t.Error("the step is new")
	}
	r.bind(world())
	if !r.Pending() {
		t.Error("nothing is measured any more")
	}
}
