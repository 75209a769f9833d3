package daemon

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// leastServices is how many services must be known before measuring groups of
// them makes sense.
const leastServices = 2

const (
	// storedPredictors is how many predictors are remembered, the newest.
	storedPredictors = 32

	// loggedSkips is how much of what cannot be measured is listed in the log.
	loggedSkips = 20
)

// FitFunc fits a predictor to measured groups. The operator times are those of
// each model by name.
type FitFunc func(ctx context.Context, d *training.Dataset, operators map[string][]training.OperatorTimes) (*predictor.File, error)

// phase is where the daemon stands on its way to a predictor.
type phase int

const (
	phaseLoading   phase = iota // not every service was ready yet
	phaseSolo                   // there is none, and none will come by itself
	phaseMeasuring              // groups are measured while nothing else is to do
	phaseTraining               // a predictor is fitted to them
	phaseServing                // groups are predicted
)

var phaseNames = [...]string{"loading", "solo", "measuring", "training", "serving"}

func (p phase) String() string { return phaseNames[p] }

// prediction is how the loop comes by a predictor of groups: from the
// configuration, from the state file, or by measuring and training.
type prediction struct {
	phase      phase
	reason     string // for the phase, to a person
	configured *predictor.File
	refused    error             // why there is no configured one though there should be
	stored     []*predictor.File // newest first
	file       *predictor.File   // in use
	unknown    []string          // services whose models it does not know
	fit        FitFunc           // nil if none may be fitted
	options    config.Profile
	changed    bool               // the models, since a predictor was chosen for them
	generation int                // counts such choices: what was begun for an earlier one comes too late
	cancel     context.CancelFunc // ends the fitting that was begun last, nil if none was
	measure    bool               // measure even if there is a predictor
	progress   training.Progress
	drift      training.Drift
	skips      []training.Skip
}

// overlaps reports whether a policy forms groups of several services.
func overlaps(policy string) bool { return policy == "overlap" || policy == "abacus" }

// bindPredictor is called when a worker is ready. Once all of those are that
// are not given up, it takes the predictor that fits their models, or begins to
// make one.
func (l *loop) bindPredictor() {
	p := &l.prediction
	if !overlaps(l.config.Policy) || !p.changed || !l.settled() {
		return
	}
	p.changed = false
	l.rebind()
	served := l.models()
	if p.measure {
		l.profile()
		return
	}
	if l.config.Predictor.File != "" {
		err := p.refused
		if err == nil {
			err = l.use(p.configured, served)
		}
		if err != nil {
			l.stand(phaseSolo, fmt.Sprintf("the configured predictor is refused: %v", err))
		}
		return
	}
	for _, f := range p.stored {
		err := l.use(f, served)
		if err == nil {
			return
		}
		l.log.Debug().Err(err).Msg("a stored predictor does not fit")
	}
	l.profile()
}

// rebind gives up what was begun for other models.
func (l *loop) rebind() {
	p := &l.prediction
	p.generation++
	l.profiling.end()
	if p.cancel != nil {
		p.cancel()
		p.cancel = nil
	}
}

// settled reports whether every worker has loaded its model or was given up.
func (l *loop) settled() bool {
	for _, s := range l.served() {
		if w := &s.worker; w.info == nil && !w.givenUp {
			return false
		}
	}
	return true
}

// served returns the services that requests find.
func (l *loop) served() (list []*slot) {
	for _, s := range l.slots {
		if s != nil && s.state == slotServing {
			list = append(list, s)
		}
	}
	return list
}

// models describes the models of all slots.
func (l *loop) models() []predictor.Served {
	list := make([]predictor.Served, len(l.slots))
	for i, s := range l.slots {
		if s == nil {
			continue
		}
		list[i] = predictor.Served{Service: s.config.Name, Model: s.config.Name}
		if m, ok := l.measured(models.ServiceID(i)); ok {
			list[i].Hash, list[i].Operators = m.Hash, m.Operators
		}
		if l.emulation != nil {
			// Whoever measured the device named the models; nobody has their files.
			list[i].Model, list[i].Hash = s.model.Name, ""
		}
	}
	return list
}

// measured returns the model of a service as it stands in datasets. Its
// threads are part of what makes it the same: they decide how long it takes.
func (l *loop) measured(id models.ServiceID) (training.Model, bool) {
	info := l.slots[id].worker.info
	if info == nil {
		return training.Model{}, false
	}
	return training.Model{
		Name:      l.name(id),
		Hash:      info.Hash + "/" + l.share(id),
		Operators: len(info.Operators),
	}, true
}

// measuredOn describes the device in datasets, with what else decides how long
// operators take. An emulated device is what it is made after: what was measured
// there holds here.
func (l *loop) measuredOn() string {
	if l.emulation != nil {
		return l.emulation.name
	}
	for _, s := range l.served() {
		if info := s.worker.info; info != nil {
			return fmt.Sprintf("%s, ONNX Runtime %s", l.device, info.ORTVersion)
		}
	}
	return l.device
}

// known leaves only those models that a predictor was trained on, cut as they
// were then. What was replaced while the daemon serves is unknown to it, and no
// reason to do without it for the others.
func known(f *predictor.File, served []predictor.Served) []predictor.Served {
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

// use serves with a predictor, if it fits.
func (l *loop) use(f *predictor.File, served []predictor.Served) error {
	if l.reloaded {
		served = known(f, served)
	}
	bind, err := f.Match(l.measuredOn(), served)
	if err != nil {
		return err
	}
	if err := l.predictor.Use(f, bind); err != nil {
		return err
	}
	again := l.prediction.file == f // what it has learned holds for the services that stay
	l.prediction.file = f
	if l.profiles != nil && !again {
		if c, ok := l.profiles.calibration(f); ok && l.predictor.Restore(c) != nil {
			l.log.Warn().Msg("the stored calibration of the predictor is impossible; it is learned again")
		}
	}
	var unknown []string
	for _, slot := range l.served() {
		if bind[slot.service.ID] < 0 {
			unknown = append(unknown, slot.config.Name)
		}
	}
	reason := fmt.Sprintf("trained on %d groups at %s, error %.1f %%", f.Rows, f.Created.Format(time.DateTime), f.Test.MAPE)
	if len(unknown) > 0 {
		reason += "; it does not know " + strings.Join(unknown, ", ")
	}
	l.prediction.unknown = unknown
	l.stand(phaseServing, reason)
	return nil
}

// stand says where the daemon stands.
func (l *loop) stand(p phase, reason string) {
	if l.prediction.phase == p && l.prediction.reason == reason {
		return
	}
	l.prediction.phase, l.prediction.reason = p, reason
	l.log.Info().Stringer("predictor", p).Str("why", reason).Msg("prediction of operator groups")
	if p != phaseServing {
		l.predictor.Forget()
		l.prediction.file, l.prediction.unknown = nil, nil
	}
}

// remedy says how a predictor is to be had that knows the unknown services, "" if there
// are none. One with a name that the predictor was trained on keeps a daemon that
// starts from using it, so that it measures anew.
func (l *loop) remedy() string {
	p := &l.prediction
	if len(p.unknown) == 0 {
		return ""
	}
	const byHand = "stop overlapd, run overlapd profile and overlapd train, "
	replaced := slices.ContainsFunc(p.unknown, func(name string) bool {
		return slices.ContainsFunc(p.file.Features.Models, func(m predictor.FeatureModel) bool { return m.Name == name })
	})
	switch {
	case l.emulation != nil:
		return "stop overlapd, fit a predictor with overlapd train to data that has them, name it in predictor.file, and start overlapd again"
	case l.config.Predictor.File != "":
		return byHand + "name the new file in predictor.file, and start it again"
	case replaced && p.options.OnStart && p.fit != nil:
		return "restart overlapd, which then measures groups while no query comes and fits another predictor; or " + byHand + "and start it again"
	}
	return byHand + "and start it again"
}

// profile begins to measure groups, if that is wanted.
func (l *loop) profile() {
	o := l.prediction.options
	subjects, services := l.subjects()
	switch {
	case l.emulation != nil:
		l.stand(phaseSolo, "there is none; an emulated device is not measured: fit one with overlapd train to the data that its profile was made of, and name it in predictor.file")
		return
	case !o.OnStart:
		l.stand(phaseSolo, "there is none for these models on this device; make one with overlapd profile and overlapd train")
		return
	case len(subjects) < leastServices:
		l.stand(phaseSolo, "groups need two services at least")
		return
	}
	device := l.measuredOn()
	list := make([]training.Model, len(subjects))
	for i := range subjects {
		list[i] = subjects[i].Model
	}
	sessionOptions := training.DefaultSessionOptions(subjects, o.Groups)
	sessionOptions.Spans, sessionOptions.Seed = min(o.Spans, len(subjects)), uint64(o.Seed)
	sessionOptions.MaxRepeats = o.Repeats
	sessionOptions.MinRepeats = min(sessionOptions.MinRepeats, o.Repeats)
	l.stand(phaseMeasuring, "there is none for these models on this device, so batches run one at a time: groups are measured while no query comes")
	l.withMeasured(device, list, func(stored *training.Dataset, operators map[string][]training.OperatorTimes) (func(*loop), error) {
		session, err := training.NewSession(sessionOptions, stored, operators)
		return func(l *loop) { l.profiling.begin(session, device, services, o.Time) }, err
	})
}

// withMeasured reads what was measured of models and hands it to prepare, both
// away from the loop. What that returns runs in the loop, unless other models
// are served by then. If any of it fails, there is no predictor.
func (l *loop) withMeasured(device string, list []training.Model, prepare func(*training.Dataset, map[string][]training.OperatorTimes) (func(*loop), error)) {
	generation := l.prediction.generation
	taken := l.keeper.keep("reading what was measured", func(s *training.Store) error {
		d, err := s.Dataset(device, list)
		var operators map[string][]training.OperatorTimes
		if err == nil {
			operators, err = s.Operators(device, list)
		}
		var then func(*loop)
		if err == nil {
			then, err = prepare(d, operators)
		}
		l.tell(message{ask: func(l *loop) {
			switch {
			case l.prediction.generation != generation:
			case err != nil:
				l.stand(phaseSolo, fmt.Sprintf("what was measured cannot be used: %v", err))
			default:
				then(l)
			}
		}})
		return err
	})
	if !taken {
		l.stand(phaseSolo, "what was measured cannot be read: the state file is too slow")
	}
}

// subjects returns what is to be measured, sorted by name, and whose models
// they are.
func (l *loop) subjects() ([]training.Subject, []models.ServiceID) {
	var subjects []training.Subject
	var services []models.ServiceID
	for _, s := range l.served() {
		if s.worker.info != nil && !s.worker.givenUp {
			services = append(services, s.service.ID)
		}
	}
	slices.SortFunc(services, func(a, b models.ServiceID) int { return strings.Compare(l.name(a), l.name(b)) })
	longest := l.longestSpan(len(services))
	for _, id := range services {
		m, _ := l.measured(id)
		s, own := training.Subject{Model: m, Sizes: []int{1}}, l.slots[id]
		if own.service.Batched() {
			s.Sizes = own.config.MeasuredSizes()
		}
		if models.HasSeqLen(own.worker.info.Inputs) {
			s.SeqLens = own.config.SeqLens
		}
		s.Sizes = slices.DeleteFunc(slices.Clone(s.Sizes), func(size int) bool {
			return size > s.Sizes[0] && l.takes(id, size, s.SeqLens) > longest
		})
		subjects = append(subjects, s)
	}
	return subjects, services
}

// longestSpan returns how long a batch may take alone to be measured in groups
// of so many services while queries may come: a query that waits for such a
// group has half of its QoS target left. Without an endpoint none comes.
func (l *loop) longestSpan(services int) time.Duration {
	if l.prediction.measure {
		return math.MaxInt64
	}
	least := time.Duration(math.MaxInt64)
	for _, s := range l.served() {
		if !s.config.BestEffort {
			least = min(least, s.config.Target)
		}
	}
	return least / 2 / time.Duration(max(1, min(services, l.config.Profile.Spans)))
}

// takes returns how long a batch of a service takes alone with the longest
// sequence, as far as is known.
func (l *loop) takes(id models.ServiceID, size int, seqLens []int) time.Duration {
	whole := models.Span{Service: id, End: l.specs[id].Operators, Size: size}
	if len(seqLens) > 0 {
		whole.SeqLen = slices.Max(seqLens)
	}
	took, _ := l.solo.Span(whole)
	return took
}

// profiled is called when nothing is left to measure, or no time.
func (l *loop) profiled() {
	p := l.profiling.session.Progress()
	device, list := l.profiling.device, l.profiling.session.Models()
	l.prediction.progress = p
	l.prediction.skips, l.prediction.drift = l.profiling.session.Skips(), l.profiling.session.Drift()
	if !l.prediction.measure { // else they are reported
		l.logFaults()
	}
	reason := fmt.Sprintf("%d of %d measurements are made", p.Done-p.Skipped, p.Total)
	if p.Skipped > 0 {
		reason += fmt.Sprintf(", %d cannot be", p.Skipped)
	}
	if p.Done < p.Total {
		reason += fmt.Sprintf(", and the time for them, %v, is spent", l.profiling.limit)
	}
	l.profiling.end()
	if l.prediction.fit == nil {
		l.stand(phaseSolo, reason+"; make a predictor of them with overlapd train")
		return
	}
	l.stand(phaseTraining, reason)
	l.withMeasured(device, list, func(d *training.Dataset, operators map[string][]training.OperatorTimes) (func(*loop), error) {
		return func(l *loop) { l.train(d, operators) }, nil
	})
}

// logFaults writes what went wrong while groups were measured.
func (l *loop) logFaults() {
	skips := l.prediction.skips
	for _, skip := range skips[:min(len(skips), loggedSkips)] {
		l.log.Warn().Err(skip.Err).Str("service", skip.Model).Int("size", skip.Size).Int("seq_len", skip.SeqLen).Msg("this could not be measured")
	}
	if more := len(skips) - loggedSkips; more > 0 {
		l.log.Warn().Int("more", more).Msg("nor could the rest that is not listed")
	}
	if d := l.prediction.drift; d.Exceeded {
		l.log.Warn().Float64("percent", d.Worst.Percent).Msg("the device became slower or faster while it was measured; measure again when it is calm")
	}
}

// train begins to fit a predictor.
func (l *loop) train(d *training.Dataset, operators map[string][]training.OperatorTimes) {
	ctx, cancel := context.WithCancel(l.life)
	l.prediction.cancel = cancel
	fit := l.prediction.fit
	l.goroutines.Go(func() {
		f, err := fit(ctx, d, operators)
		l.tell(message{ask: func(l *loop) {
			if ctx.Err() == nil {
				l.trained(f, err)
			}
		}})
	})
}

// trained serves with the predictor that was fitted, and stores it.
func (l *loop) trained(f *predictor.File, err error) {
	if err == nil {
		err = l.use(f, l.models())
	}
	if err != nil {
		l.log.Warn().Err(err).Msg("fitting a predictor")
		l.stand(phaseSolo, fmt.Sprintf("fitting one failed: %v", err))
		return
	}
	l.keeper.keep("storing the predictor", func(s *training.Store) error { return s.PutPredictor(f) })
	p := &l.prediction
	p.stored = slices.Insert(p.stored, 0, f)
	p.stored = p.stored[:min(len(p.stored), storedPredictors)]
}
