// Package learning decides how a daemon obtains a predictor of operator groups. There are
// three sources: a file named by the configuration, a predictor in the state file that fits
// the models on this device, or one that the daemon makes itself by measuring groups while
// it is idle and fitting a network to the measurements.
//
// A [Learner] is a value without goroutines, clock or files. The scheduler goroutine owns
// it. It reports what happens ([Learner.Bind] with the current models, [Learner.Finished]
// with the outcome of a step), asks what to measure ([Learner.Next]), and carries out what
// [Learner.Work] returns: reads and writes of the state file, fits, and log lines. The
// predictor and the table of isolated latencies belong to the scheduler; the Learner only
// fills them.
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
	// storedPredictors is how many predictors are kept, the newest ones. A daemon that
	// alternates between a few configurations thus finds each one's predictor again.
	storedPredictors = 32

	// poorPercent is the test error (MAPE) in percent above which the report recommends
	// more measurements.
	poorPercent = 15

	// byHand begins the remedies that need other commands.
	byHand = "stop overlapd, run overlapd profile and overlapd train, "
)

// ErrDisturbed is the failure of a step one of whose rounds was stopped because queries
// were queued. The step is repeated.
var ErrDisturbed = errors.New("queries are queued")

// Options is what a Learner may do and what it starts with.
type Options struct {
	// Policy is the scheduling policy. Only policies that form groups of several services
	// need a predictor, see [FormsGroups].
	Policy string

	// Emulated is set on an emulated device, whose times are modelled and must not be
	// measured.
	Emulated bool

	// Alone is why each group has one span, or empty if it may have several: nothing is
	// predicted, but groups may be measured.
	Alone string

	// CanFit is set if a network may be fitted to the measurements.
	CanFit bool

	// OnStart allows measuring when no predictor fits.
	OnStart bool

	// Limit is the time for measuring, 0 for no limit. It is exceeded if the groups are too
	// few for a predictor.
	Limit time.Duration

	// Groups is the number of groups to sample, Repeats the maximum number of runs of one
	// measurement, Spans the maximum number of spans in a group, and Seed the seed of the
	// sampling.
	Groups  int
	Repeats int
	Spans   int
	Seed    uint64

	// File is the predictor that the configuration names. If it is not empty, no other one
	// is used. Configured is its contents, or Refused is why it cannot be read.
	File       string
	Configured *predictor.File
	Refused    error

	// Stored are the predictors in the state file, newest first.
	Stored []*predictor.File
}

// World is what a predictor must fit: the device and the models that run on it.
type World struct {
	// Device is the name of the device and everything else that affects how long operators
	// take.
	Device string

	// Models is indexed by service ID.
	Models []predictor.Served

	// Services are those that take queries.
	Services []Service

	// Reloaded is set if services were added or removed since the daemon started.
	Reloaded bool
}

// Service is a service whose model may be measured.
type Service struct {
	ID models.ServiceID

	// Model has no operators while it is not loaded.
	Model training.Model

	// GivenUp is set if the service has failed permanently: it has no worker and will not
	// get one.
	GivenUp bool

	// Target is the QoS target, 0 for best effort.
	Target time.Duration

	// Sizes are the batch sizes to measure, ascending.
	Sizes []int

	// SeqLens are the sequence lengths to measure, none if the model takes no sequence.
	SeqLens []int
}

// Learner chooses or makes a predictor and puts it into use. The zero value is not usable;
// see New.
type Learner struct {
	options   Options
	predictor *predictor.Predictor
	solo      *predictor.Solo

	// stands is the report without what is computed when it is requested.
	stands report

	// stale is set if the models have changed since a predictor was chosen for them.
	stale bool

	// offline is set by MeasureOnly: measure even if a predictor fits, and fit none.
	offline bool

	// generation counts choices. Results of work that was started for an earlier choice are
	// ignored.
	generation int

	pace
	measuring

	work Work
}

// New returns a Learner that waits for the models to load. It makes p use the predictor
// that it finds. solo holds the known isolated latencies of spans.
func New(o Options, p *predictor.Predictor, solo *predictor.Solo) *Learner {
	l := &Learner{options: o, predictor: p, solo: solo, stands: report{Phase: Loading, Limit: o.Limit}, pace: pace{arrived: -Quiet}}
	switch {
	case !FormsGroups(o.Policy):
		l.stands.Phase, l.stands.Reason = Solo, fmt.Sprintf("the policy %s runs one batch at a time", o.Policy)
	case o.Alone != "":
		l.stands.Phase, l.stands.Reason = Solo, o.Alone
	}
	return l
}

// MeasureOnly makes measuring the purpose, for overlapd profile: groups are measured for at
// most limit even if a predictor fits, and nothing is fitted. It must be called before the
// first Bind.
func (l *Learner) MeasureOnly(limit time.Duration) {
	l.offline, l.options.CanFit = true, false
	if l.options.Alone != "" && FormsGroups(l.options.Policy) {
		l.options.Alone, l.stands.Phase, l.stands.Reason = "", Loading, ""
	}
	l.options.OnStart, l.options.Limit, l.stands.Limit = true, limit, limit
}

// formsGroups reports whether this daemon runs groups that need predictions.
func (l *Learner) formsGroups() bool { return FormsGroups(l.options.Policy) && l.options.Alone == "" }

// FormsGroups reports whether a policy runs spans of several services at the same time.
func FormsGroups(policy string) bool { return policy == "overlap" || policy == "abacus" }

// Changed tells the Learner that a model was replaced or removed, so that a predictor must
// be chosen again.
func (l *Learner) Changed() { l.stale = true }

// GaveUp tells the Learner that a service has failed permanently. The choice of a predictor
// may have waited for it.
func (l *Learner) GaveUp() {
	if l.stands.Phase == Loading || l.stands.Phase == Measuring {
		l.stale = true
	}
}

// Stale reports whether the owner must call Bind, once every worker has loaded its model or
// has failed permanently.
func (l *Learner) Stale() bool { return l.stale && l.formsGroups() }

// Bind puts the predictor into use that fits the current models, or starts to make one. A
// configured predictor is never replaced by another, even if it does not fit.
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
			l.enter(Solo, fmt.Sprintf("the configured predictor was rejected: %v", err))
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

// Stop abandons what was started: measuring, reading and fitting.
func (l *Learner) Stop() {
	l.generation++
	l.session, l.running = nil, false
	l.work.Stop = true
	l.work.Read, l.work.Fit = nil, nil
}

// enter begins a phase. A phase without a predictor also forgets what the predictor has
// learned from runs.
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

// use serves with a predictor if it fits. Services whose models it does not know run
// without overlapping.
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
	// With the same file, what it has learned from runs still holds for the services that
	// stay.
	if l.stands.File != f {
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
		reason += "; it does not cover " + strings.Join(l.stands.Unknown, ", ")
	}
	if f.Test.MAPE > poorPercent && l.options.File == "" {
		reason += fmt.Sprintf("; more groups would lower the error: stop overlapd, run overlapd profile --groups %d and overlapd train, and start it again", 2*max(l.options.Groups, f.Rows))
	}
	l.enter(Serving, reason)
	return nil
}

// known removes the models that a predictor was not trained on, or that are now cut
// differently. A model that was replaced while the daemon serves is then unknown, and the
// predictor stays in use for the others.
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

// plan starts to measure groups if that is allowed and possible. why says why there is no
// predictor; "" means that none was ever made.
func (l *Learner) plan(w World, why string) {
	subjects := l.subjects(w.Services)
	switch {
	case l.options.Emulated:
		l.enter(Solo, "there is none; an emulated device is not measured: fit one with overlapd train to the data of its profile, and name it in predictor.file")
		return
	case !l.options.OnStart:
		l.enter(Solo, "there is none for these models on this device; make one with overlapd profile and overlapd train")
		return
	case len(subjects) < 2:
		l.enter(Solo, "groups need at least two services")
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
			until += fmt.Sprintf(", and longer until there are the %d that a predictor needs", l.enough)
		}
	}
	l.enter(Measuring, cmp.Or(why, "there is none for these models on this device")+", so batches run one at a time: groups are measured while no query arrives, "+until)
	l.work.Read = &Read{generation: l.generation, device: w.Device, models: list}
	l.work.Read.begin = func(stored *training.Dataset, operators map[string][]training.OperatorTimes) *training.Session {
		return training.NewSession(o, stored, operators)
	}
}

// subjects returns the services whose models are to be measured, sorted by model name,
// without batch sizes that take too long.
func (l *Learner) subjects(served []Service) []Service {
	loaded := slices.DeleteFunc(slices.Clone(served), func(s Service) bool { return s.Model.Operators == 0 || s.GivenUp })
	slices.SortFunc(loaded, func(a, b Service) int { return strings.Compare(a.Model.Name, b.Model.Name) })
	longest := l.longestSpan(served, len(loaded))
	l.longest = min(longest, longestRound) * time.Duration(max(1, min(len(loaded), l.options.Spans)))
	for i := range loaded {
		s := &loaded[i]
		// The smallest size is always measured, for without it nothing is known of a model.
		least := s.Sizes[0]
		s.Sizes = slices.DeleteFunc(slices.Clone(s.Sizes), func(size int) bool { return size > least && l.takes(s, size) > longest })
	}
	return loaded
}

// longestSpan returns the longest isolated latency of a batch that may be measured in
// groups while queries may arrive. A query that waits for such a group still has half of
// its QoS target left. Offline there are no queries, so there is no limit.
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

// takes returns the isolated latency of a batch with the longest sequence, as far as it is
// known.
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

// Services returns the services that are measured. Their workers must be ready when Next is
// called.
func (l *Learner) Services() []models.ServiceID { return l.services }

// Next returns the rounds of the next step to measure. The owner runs them in order, with
// rounds of queries in between, and then calls Finished. There are none when everything is
// measured, or when the time is spent and there are enough groups; fitting begins then.
func (l *Learner) Next() []models.Group {
	if l.session == nil {
		return nil
	}
	over := l.options.Limit > 0 && l.session.Progress().Spent >= l.options.Limit
	if !over || l.tooFew() {
		if step, ok := l.session.Next(); ok {
			if over {
				l.enter(Measuring, fmt.Sprintf("in %v fewer than the %d groups that a predictor needs were measured, so batches run one at a time and measuring continues; "+
					"it ends sooner with less load, or with overlapd profile while overlapd is stopped", l.options.Limit, l.enough))
			}
			l.step, l.spent, l.running, l.lost, l.stepGeneration = step, 0, true, false, l.generation
			return l.rounds(&step)
		}
	}
	l.measured()
	return nil
}

// tooFew reports whether a predictor is to be fitted but there are too few groups for it.
func (l *Learner) tooFew() bool { return l.options.CanFit && l.rows < l.enough }

// Finished records the outcome of the step that Next has returned: the times of its rounds
// in order, or why it failed. After ErrDisturbed the step is repeated. culprit is the
// service whose span failed, or -1 if it was not a single one. A step that was interrupted
// by Stop is ignored.
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

// tookGroup records the time of a group. Several runs make one row of the dataset.
func (l *Learner) tookGroup(t Timing, spent time.Duration) {
	row, ok := l.session.Took(t.Latency, t.Device, spent)
	if !ok {
		return
	}
	l.rows++
	d := &training.Dataset{Device: l.device, Models: l.session.Models(), Rows: []training.Row{row}}
	l.store("storing a measured group failed", func(s *training.Store) error { return s.Append(d) })
}

// tookOperators records the times of the operators of a model, one round each.
func (l *Learner) tookOperators(took []Timing, spent time.Duration) {
	times := make([]time.Duration, len(took))
	for i, t := range took {
		times[i] = t.Latency
	}
	if model, result, ok := l.session.TookOperators(times, spent); ok {
		device := l.device
		l.store("storing operator times failed", func(s *training.Store) error { return s.PutOperators(device, model, result) })
	}
}

// Cold tells the Learner that the worker of a service was restarted. Its first run with
// inputs of a given size is then slower and does not count.
func (l *Learner) Cold(service models.ServiceID) {
	if i := l.subject(service); l.session != nil && i >= 0 {
		l.session.Cold(i)
		l.lost = true
	}
}

// Lost reports whether a worker was restarted since the step began. The worker has then
// lost what earlier rounds of the step have prepared.
func (l *Learner) Lost() bool { return l.lost }

// measured ends the session because everything is measured or the time is spent.
func (l *Learner) measured() {
	p := l.session.Progress()
	l.stands.Progress = p
	list := l.session.Models()
	l.session = nil
	if !l.offline { // offline, the command reports them
		l.work.Measured = p
	}
	reason := fmt.Sprintf("%d of %d measurements are made", p.Done-p.Skipped, p.Total)
	if p.Skipped > 0 {
		reason += fmt.Sprintf(", %d are impossible", p.Skipped)
	}
	if p.Done < p.Total {
		reason += fmt.Sprintf(", and their time, %v, has passed", l.options.Limit)
	}
	if !l.options.CanFit {
		l.enter(Solo, reason+"; make a predictor from them with overlapd train")
		return
	}
	l.enter(Training, reason)
	l.work.Read = &Read{generation: l.generation, device: l.device, models: list}
}

// Found continues with the result of a Read: it begins to measure or to fit. If reading
// failed there is no predictor.
func (l *Learner) Found(now time.Duration, f found) {
	switch {
	case f.generation != l.generation:
	case f.err != nil:
		l.enter(Solo, fmt.Sprintf("the measurements cannot be used: %v", f.err))
	case f.session != nil:
		l.session, l.rows, l.calm = f.session, len(f.fit.Data.Rows), now
	default:
		l.work.Fit = &f.fit
	}
}

// Fitted puts the predictor into use that a fit has produced, and has it stored. After a
// failed fit it measures twice as many groups, if there are that many, and otherwise stops
// trying.
func (l *Learner) Fitted(of *Fit, f *predictor.File, err error, w World) {
	if of.generation != l.generation {
		return
	}
	if err == nil {
		err = l.use(f, w)
	}
	if err != nil {
		l.work.Unfound = err
		why := fmt.Sprintf("training failed: %v", err)
		if p := &l.stands.Progress; p.Done < p.Total {
			l.enough = 2 * l.rows
			l.plan(w, why)
			return
		}
		l.enter(Solo, why)
		return
	}
	l.store("storing the predictor failed", func(s *training.Store) error { return s.PutPredictor(f) })
	stored := slices.Insert(l.options.Stored, 0, f)
	l.options.Stored = stored[:min(len(stored), storedPredictors)]
}

// Work returns what the owner must do since the last call.
func (l *Learner) Work() Work {
	w := l.work
	l.work = Work{}
	return w
}

// store adds a write to the work.
func (l *Learner) store(what string, do func(*training.Store) error) {
	l.work.Store = append(l.work.Store, Job{what, do})
}

// Report returns the current phase and progress.
func (l *Learner) Report() report {
	r := l.stands
	r.Remedy = l.remedy()
	if s := l.session; s != nil {
		r.Measuring, r.Progress = true, s.Progress()
	}
	return r
}

// remedy returns how to get a predictor that knows the unknown services. If such a service
// has the name of a model that the predictor was trained on, the predictor will not fit
// after a restart, and the daemon measures again by itself.
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
		return "restart overlapd, which then measures groups while no query arrives and fits another predictor; or " + byHand + "and start it again"
	}
	return byHand + "and start it again"
}

// Timing is the time of a group: its latency as predictors see it, and its time by the
// device's own clock, 0 if there is none.
type Timing struct{ Latency, Device time.Duration }

// measuring is a session that measures groups of the daemon's services, and the step that
// is being measured.
type measuring struct {
	// session is nil if nothing is to be measured.
	session *training.Session
	device  string

	// services maps the subjects of the session to services.
	services []models.ServiceID

	// rows is the number of stored groups, enough the number that a predictor needs.
	rows   int
	enough int

	step training.Step

	// running is set while the step is being measured.
	running bool

	// lost is set if a worker was restarted since the step began.
	lost bool

	// stepGeneration is the generation for which the step began.
	stepGeneration int
}

// rounds returns the rounds of a step: one that prepares a batch, if needed, and then the
// group, or each operator of the model by itself.
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

// served replaces the subjects in a group by services.
func (m *measuring) served(g models.Group) models.Group {
	spans := make([]models.Span, len(g.Spans))
	for i, s := range g.Spans {
		s.Service = m.services[s.Service]
		spans[i] = s
	}
	return models.Group{Spans: spans}
}

// subject returns the subject of a service, or -1.
func (m *measuring) subject(service models.ServiceID) models.ServiceID {
	return models.ServiceID(slices.Index(m.services, service))
}
