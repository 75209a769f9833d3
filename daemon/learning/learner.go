// Package learning is how a daemon comes by a predictor of operator groups: one
// that the configuration names, one of the state file that fits the models on
// this device, or one that it makes by measuring groups while nobody asks
// anything, and fitting a network to what was measured.
//
// A [Learner] is a value: it has no goroutine, no clock and no files. The
// scheduler goroutine owns it, says what happens ([Learner.Bind] with the models
// of now, [Learner.Finished] with what a step took), asks what to measure
// ([Learner.Next]), and then does what [Learner.Work] returns: reads and writes
// of the state file, a fit, what is worth a line in the log. The predictor and
// the solo times that it is made with are the scheduler's own.
package learning

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

const (
	// storedPredictors is how many predictors are remembered, the newest.
	storedPredictors = 32

	// poorPercent is an error of a predictor that is worth doing something about.
	poorPercent = 15

	byHand = "stop overlapd, run overlapd profile and overlapd train, "
)

// ErrDisturbed is what a step fails with of which a round was stopped because queries wait.
// It is run again.
var ErrDisturbed = errors.New("queries wait")

// Options is what a Learner may do, and what it begins with.
type Options struct {
	Policy   string // groups are predicted for those only that form groups of several services
	Emulated bool   // the device is modelled, so nothing may be measured on it
	Alone    bool   // each group has one span, so none is predicted; one may be measured
	CanFit   bool   // a network may be fitted to what was measured

	OnStart bool          // measure where no predictor fits
	Limit   time.Duration // on measuring, 0 for none; too few groups for a predictor are measured on
	Groups  int           // to sample
	Repeats int           // the most of one measurement
	Spans   int           // in a group at most
	Seed    uint64        // seeds the sampling

	File       string            // the predictor that the configuration names, "" for none: no other is used then
	Configured *predictor.File   // what it holds
	Refused    error             // why it cannot be read
	Stored     []*predictor.File // those in the state file, the newest first
}

// World is what a predictor must fit: the device, and the models on it.
type World struct {
	Device   string             // with what else decides how long operators take
	Models   []predictor.Served // by service ID
	Services []Service          // those that take queries
	Reloaded bool               // services came or went since the daemon started
}

// Service is a service that may be measured.
type Service struct {
	ID      models.ServiceID
	Model   training.Model // without operators while it is not loaded
	GivenUp bool           // it has no worker, and none comes
	Target  time.Duration  // the latency that its queries must keep, 0 for best effort
	Sizes   []int          // batch sizes to measure, ascending
	SeqLens []int          // to measure, none if it takes no sequence
}

// Learner decides how a daemon comes by a predictor, and takes it into use.
type Learner struct {
	options   Options
	predictor *predictor.Predictor
	solo      *predictor.Solo

	stands     report // without what is asked anew each time
	stale      bool   // the models changed since a predictor was chosen for them
	offline    bool   // measure even if there is a predictor, and fit none
	generation int    // counts choices: what was begun for an earlier one comes too late

	pace
	measuring

	work Work
}

// New returns a Learner that waits for the models. What it finds it has p use;
// solo holds what is known of spans that run alone.
func New(o Options, p *predictor.Predictor, solo *predictor.Solo) *Learner {
	l := &Learner{options: o, predictor: p, solo: solo, stands: report{Phase: Loading, Limit: o.Limit}, pace: pace{arrived: -Quiet}}
	switch {
	case !FormsGroups(o.Policy):
		l.stands.Phase, l.stands.Reason = Solo, fmt.Sprintf("the policy %s runs one batch at a time", o.Policy)
	case o.Alone:
		l.stands.Phase, l.stands.Reason = Solo, `without MPS services take turns on the GPU, so each group has one span; set mode = "own" in [mps]`
	}
	return l
}

// MeasureOnly makes measuring the purpose: also where there is a predictor, for
// limit at most, and nothing is fitted. It is called before the first Bind.
func (l *Learner) MeasureOnly(limit time.Duration) {
	l.offline, l.options.CanFit = true, false
	if l.options.Alone && FormsGroups(l.options.Policy) {
		l.options.Alone, l.stands.Phase, l.stands.Reason = false, Loading, ""
	}
	l.options.OnStart, l.options.Limit, l.stands.Limit = true, limit, limit
}

func (l *Learner) formsGroups() bool { return FormsGroups(l.options.Policy) && !l.options.Alone }

// FormsGroups reports whether a policy runs spans of several services together.
func FormsGroups(policy string) bool { return policy == "overlap" || policy == "abacus" }

// Changed is called when a model is another than before, or is gone: the
// predictor has to be chosen anew.
func (l *Learner) Changed() { l.stale = true }

// GaveUp is called when a service is expected no more, for which choosing a
// predictor may have waited.
func (l *Learner) GaveUp() {
	if l.stands.Phase == Loading || l.stands.Phase == Measuring {
		l.stale = true
	}
}

// Stale reports whether Bind is to be called, once every worker has loaded its
// model or was given up.
func (l *Learner) Stale() bool { return l.stale && l.formsGroups() }

// Bind takes the predictor into use that fits the models of now, or begins to
// make one.
func (l *Learner) Bind(w World) {
	l.stale, l.enough = false, training.LeastRows
	l.Stop()
	if l.offline {
		l.plan(w, "")
		return
	}
	if l.options.File != "" {
		err := l.options.Refused
		if err == nil {
			err = l.use(l.options.Configured, w)
		}
		if err != nil {
			l.enter(Solo, fmt.Sprintf("the configured predictor is refused: %v", err))
		}
		return
	}
	for _, f := range l.options.Stored {
		err := l.use(f, w)
		if err == nil {
			return
		}
		l.work.Unfit = append(l.work.Unfit, err)
	}
	l.plan(w, "")
}

// Stop gives up what was begun: measuring, reading and fitting.
func (l *Learner) Stop() {
	l.generation++
	l.session, l.running = nil, false
	l.work.Stop = true
	l.work.Read, l.work.Fit = nil, nil
}

// enter begins a phase. Whatever a predictor has learned is worth nothing in
// those without one.
func (l *Learner) enter(phase, reason string) {
	if l.stands.Phase == phase && l.stands.Reason == reason {
		return
	}
	l.stands.Phase, l.stands.Reason = phase, reason
	l.work.Entered = true
	if phase != Serving {
		l.predictor.Forget()
		l.stands.File, l.stands.Unknown = nil, nil
	}
}

// use serves with a predictor, if it fits.
func (l *Learner) use(f *predictor.File, w World) error {
	served := w.Models
	if w.Reloaded {
		served = known(f, served)
	}
	bind, err := f.Match(w.Device, served)
	if err != nil {
		return err
	}
	if err := l.predictor.Use(f, bind); err != nil {
		return err
	}
	if l.stands.File != f { // else what it has learned holds for the services that stay
		l.work.Restore = f
	}
	l.stands.File, l.stands.Unknown = f, nil
	for _, s := range w.Services {
		if bind[s.ID] < 0 {
			l.stands.Unknown = append(l.stands.Unknown, s.Model.Name)
		}
	}
	reason := fmt.Sprintf("trained on %d groups at %s, error %.1f %%", f.Rows, f.Created.Format(time.DateTime), f.Test.MAPE)
	if len(l.stands.Unknown) > 0 {
		reason += "; it does not know " + strings.Join(l.stands.Unknown, ", ")
	}
	if f.Test.MAPE > poorPercent && l.options.File == "" {
		reason += fmt.Sprintf("; more groups would lower it: stop overlapd, run overlapd profile --groups %d and overlapd train, and start it again", 2*max(l.options.Groups, f.Rows))
	}
	l.enter(Serving, reason)
	return nil
}

// known leaves only those models that a predictor was trained on, cut as they
// were then. What was replaced while the daemon serves is unknown to it, and no
// reason to do without it for the others.
func known(f *predictor.File, served []predictor.Served) []predictor.Served {
	served = slices.Clone(served)
	for i := range served {
		s := &served[i]
		trained := func(m predictor.FeatureModel) bool {
			same := m.Hash == s.Hash || m.Hash == "" && m.Name == s.Model
			return same && m.Operators == s.Operators
		}
		if s.Hash != "" && !slices.ContainsFunc(f.Features.Models, trained) {
			*s = predictor.Served{Service: s.Service}
		}
	}
	return served
}

// plan begins to measure groups, if that is wanted and possible. It says why there is
// no predictor, "" for that none was made.
func (l *Learner) plan(w World, why string) {
	subjects := l.subjects(w.Services)
	switch {
	case l.options.Emulated:
		l.enter(Solo, "there is none; an emulated device is not measured: fit one with overlapd train to the data that its profile was made of, and name it in predictor.file")
		return
	case !l.options.OnStart:
		l.enter(Solo, "there is none for these models on this device; make one with overlapd profile and overlapd train")
		return
	case len(subjects) < 2:
		l.enter(Solo, "groups need two services at least")
		return
	}
	o := training.DefaultSessionOptions(l.options.Groups)
	o.Spans, o.Seed = min(l.options.Spans, len(subjects)), l.options.Seed
	o.MaxRepeats = l.options.Repeats
	o.MinRepeats = min(o.MinRepeats, l.options.Repeats)
	var list []training.Model
	l.device, l.services = w.Device, nil
	for _, s := range subjects {
		o.Add(s.Model, s.Sizes, s.SeqLens)
		list, l.services = append(list, s.Model), append(l.services, s.ID)
	}
	until := "until all are measured"
	if limit := l.options.Limit; limit > 0 {
		until = fmt.Sprintf("for %v", limit)
		if l.options.CanFit {
			until += fmt.Sprintf(", and on until there are the %d that a predictor needs", l.enough)
		}
	}
	l.enter(Measuring, cmp.Or(why, "there is none for these models on this device")+", so batches run one at a time: groups are measured while no query comes, "+until)
	l.work.Read = &Read{generation: l.generation, device: w.Device, models: list}
	l.work.Read.begin = func(stored *training.Dataset, operators map[string][]training.OperatorTimes) *training.Session {
		return training.NewSession(o, stored, operators)
	}
}

// subjects returns the services whose models are to be measured, sorted by the names
// of those, without the batches that take too long.
func (l *Learner) subjects(served []Service) []Service {
	loaded := slices.DeleteFunc(slices.Clone(served), func(s Service) bool { return s.Model.Operators == 0 || s.GivenUp })
	slices.SortFunc(loaded, func(a, b Service) int { return strings.Compare(a.Model.Name, b.Model.Name) })
	longest := l.longestSpan(served, len(loaded))
	l.longest = min(longest, longestRound) * time.Duration(max(1, min(len(loaded), l.options.Spans)))
	for i := range loaded {
		s := &loaded[i]
		least := s.Sizes[0]
		s.Sizes = slices.DeleteFunc(slices.Clone(s.Sizes), func(size int) bool { return size > least && l.takes(s, size) > longest })
	}
	return loaded
}

// longestSpan returns how long a batch may take alone to be measured in groups
// of so many services while queries may come: a query that waits for such a
// group has half of its QoS target left. Without an endpoint none comes.
func (l *Learner) longestSpan(served []Service, services int) time.Duration {
	if l.offline {
		return math.MaxInt64
	}
	least := time.Duration(math.MaxInt64)
	for _, s := range served {
		if s.Target > 0 {
			least = min(least, s.Target)
		}
	}
	return least / 2 / time.Duration(max(1, min(services, l.options.Spans)))
}

// takes returns how long a batch of a service takes alone with the longest
// sequence, as far as is known.
func (l *Learner) takes(s *Service, size int) time.Duration {
	whole := models.Span{Service: s.ID, End: s.Model.Operators, Size: size}
	if len(s.SeqLens) > 0 {
		whole.SeqLen = slices.Max(s.SeqLens)
	}
	took, _ := l.solo.Span(whole)
	return took
}

// Pending reports whether there is something to measure, now or later.
func (l *Learner) Pending() bool { return l.session != nil && !l.running }

// Services returns the services that are measured. Their workers must be ready
// when Next is called.
func (l *Learner) Services() []models.ServiceID { return l.services }

// Next returns the rounds of the step to measure now, which are to be run one
// after another, with those of queries in between. Finished is due for them. There are
// none when all is measured, or the time for it is spent and there is enough: then
// fitting begins.
func (l *Learner) Next() []models.Group {
	if l.session == nil {
		return nil
	}
	over := l.options.Limit > 0 && l.session.Progress().Spent >= l.options.Limit
	if !over || l.tooFew() {
		if step, ok := l.session.Next(); ok {
			if over {
				l.enter(Measuring, fmt.Sprintf("the time to measure groups, %v, is spent on fewer than the %d that a predictor needs, so batches run one at a time and measuring goes on; "+
					"it ends sooner with less load, or with overlapd profile while overlapd is stopped", l.options.Limit, l.enough))
			}
			l.step, l.spent, l.running, l.lost, l.stepGeneration = step, 0, true, false, l.generation
			return l.rounds(&step)
		}
	}
	l.measured()
	return nil
}

// tooFew reports whether a predictor is to be fitted, and there are fewer groups than
// that takes.
func (l *Learner) tooFew() bool { return l.options.CanFit && l.rows < l.enough }

// Finished takes in how long the rounds of the step took that Next has returned, in
// their order, or why it failed: with ErrDisturbed it is run again, and culprit is
// the service whose span failed, -1 if it was not just one. A step that Stop came in
// between of counts for nothing.
func (l *Learner) Finished(took []Timing, culprit models.ServiceID, err error) {
	l.running = false
	spent := l.spent
	switch {
	case l.session == nil || l.stepGeneration != l.generation:
	case errors.Is(err, ErrDisturbed):
		l.session.Again(spent)
	case err != nil:
		l.session.Failed(l.subject(culprit), err, spent)
	case l.step.Operators:
		l.tookOperators(took, spent)
	default:
		l.tookGroup(took[len(took)-1], spent)
	}
}

func (l *Learner) tookGroup(t Timing, spent time.Duration) {
	row, ok := l.session.Took(t.Latency, t.Device, spent)
	if !ok {
		return
	}
	l.rows++
	d := &training.Dataset{Device: l.device, Models: l.session.Models(), Rows: []training.Row{row}}
	l.store("storing a measured group", func(s *training.Store) error { return s.Append(d) })
}

func (l *Learner) tookOperators(took []Timing, spent time.Duration) {
	times := make([]time.Duration, len(took))
	for i, t := range took {
		times[i] = t.Latency
	}
	if model, result, ok := l.session.TookOperators(times, spent); ok {
		device := l.device
		l.store("storing operator times", func(s *training.Store) error { return s.PutOperators(device, model, result) })
	}
}

// Cold is called when the worker of a service was started anew: its first run on
// inputs of a size does not count.
func (l *Learner) Cold(service models.ServiceID) {
	if i := l.subject(service); l.session != nil && i >= 0 {
		l.session.Cold(i)
		l.lost = true
	}
}

// Lost reports whether a worker was started anew since the step began, which has lost
// what earlier rounds of the step have left there.
func (l *Learner) Lost() bool { return l.lost }

// measured ends the session: nothing is left to measure, or no time.
func (l *Learner) measured() {
	p := l.session.Progress()
	l.stands.Progress = p
	list := l.session.Models()
	l.session = nil
	if !l.offline { // else they are reported
		l.work.Measured = p
	}
	reason := fmt.Sprintf("%d of %d measurements are made", p.Done-p.Skipped, p.Total)
	if p.Skipped > 0 {
		reason += fmt.Sprintf(", %d cannot be", p.Skipped)
	}
	if p.Done < p.Total {
		reason += fmt.Sprintf(", and the time for them, %v, is spent", l.options.Limit)
	}
	if !l.options.CanFit {
		l.enter(Solo, reason+"; make a predictor of them with overlapd train")
		return
	}
	l.enter(Training, reason)
	l.work.Read = &Read{generation: l.generation, device: l.device, models: list}
}

// Found goes on with what was read. If that failed there is no predictor.
func (l *Learner) Found(now time.Duration, f found) {
	switch {
	case f.generation != l.generation:
	case f.err != nil:
		l.enter(Solo, fmt.Sprintf("what was measured cannot be used: %v", f.err))
	case f.session != nil:
		l.session, l.rows, l.calm = f.session, len(f.fit.Data.Rows), now
	default:
		l.work.Fit = &f.fit
	}
}

// Fitted takes the predictor into use that a fit has made, and has it stored, or
// takes in why there is none.
func (l *Learner) Fitted(of *Fit, f *predictor.File, err error, w World) {
	if of.generation != l.generation {
		return
	}
	if err == nil {
		err = l.use(f, w)
	}
	if err != nil {
		l.work.Unfound = err
		why := fmt.Sprintf("fitting one failed: %v", err)
		if p := &l.stands.Progress; p.Done < p.Total {
			l.enough = 2 * l.rows
			l.plan(w, why)
			return
		}
		l.enter(Solo, why)
		return
	}
	l.store("storing the predictor", func(s *training.Store) error { return s.PutPredictor(f) })
	stored := slices.Insert(l.options.Stored, 0, f)
	l.options.Stored = stored[:min(len(stored), storedPredictors)]
}

// Work returns what is to be done since the last call.
func (l *Learner) Work() Work {
	w := l.work
	l.work = Work{}
	return w
}

func (l *Learner) store(what string, do func(*training.Store) error) {
	l.work.Store = append(l.work.Store, Job{what, do})
}

// Report returns how the Learner stands.
func (l *Learner) Report() report {
	r := l.stands
	r.Remedy = l.remedy()
	if s := l.session; s != nil {
		r.Measuring, r.Progress = true, s.Progress()
	}
	return r
}

// remedy returns how a predictor is to be had that knows the unknown services. One
// with a name that the predictor was trained on keeps a daemon that starts from
// using it, so that it measures anew.
func (l *Learner) remedy() string {
	if len(l.stands.Unknown) == 0 {
		return ""
	}
	replaced := slices.ContainsFunc(l.stands.Unknown, func(name string) bool {
		return slices.ContainsFunc(l.stands.File.Features.Models, func(m predictor.FeatureModel) bool { return m.Name == name })
	})
	switch {
	case l.options.Emulated:
		return "stop overlapd, fit a predictor with overlapd train to data that has them, name it in predictor.file, and start overlapd again"
	case l.options.File != "":
		return byHand + "name the new file in predictor.file, and start it again"
	case replaced && l.options.OnStart && l.options.CanFit:
		return "restart overlapd, which then measures groups while no query comes and fits another predictor; or " + byHand + "and start it again"
	}
	return byHand + "and start it again"
}

// Timing is how long the group of a round took: its latency as predictors see it,
// and by the device's own clock, 0 if that has none.
type Timing struct{ Latency, Device time.Duration }

// measuring is a session that measures groups of the daemon's services, and the
// step of it that was given out last.
type measuring struct {
	session  *training.Session // nil if nothing is to be measured
	device   string
	services []models.ServiceID // by the position of their subject in the session

	rows   int // that are stored
	enough int // for a predictor

	step    training.Step
	running bool // the step was given out and is not finished
	lost    bool // a worker was, since then

	stepGeneration int // the choice of the Learner for which the step was begun
}

// rounds returns the rounds of a step, in terms of services.
func (m *measuring) rounds(step *training.Step) []models.Group {
	var rounds []models.Group
	if len(step.Prepare.Spans) > 0 {
		rounds = append(rounds, m.served(step.Prepare))
	}
	if !step.Operators {
		return append(rounds, m.served(step.Group))
	}
	whole := m.served(step.Group).Spans[0]
	for i := range whole.End {
		one := whole
		one.Start, one.End = i, i+1
		rounds = append(rounds, models.Group{Spans: []models.Span{one}})
	}
	return rounds
}

// served returns a group of the session with services in the place of subjects.
func (m *measuring) served(g models.Group) models.Group {
	spans := make([]models.Span, len(g.Spans))
	for i, s := range g.Spans {
		s.Service = m.services[s.Service]
		spans[i] = s
	}
	return models.Group{Spans: spans}
}

// subject returns the position of a service in the session, or -1.
func (m *measuring) subject(service models.ServiceID) models.ServiceID {
	return models.ServiceID(slices.Index(m.services, service))
}
