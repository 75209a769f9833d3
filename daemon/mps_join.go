package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// Limits of asking MPS for a worker that is ready.
const (
	// joinAsks is how often the control daemon is asked before a worker that it
	// does not list counts as none of its clients, joinPause how long is waited in
	// between.
	joinAsks  = 3
	joinPause = 50 * time.Millisecond

	// joinTimeout is how long all of that may take. A control daemon that takes
	// longer keeps no service from serving.
	joinTimeout = 2 * time.Second

	// joinReplacements is how often in a row a worker that has not joined is
	// replaced by another. The one after that serves, and the status says how.
	joinReplacements = 2
)

// errOutside is why a worker is replaced.
var errOutside = errors.New("the worker is no client of MPS")

// errServesOutside is what stands against one that serves, with what to do.
var errServesOutside = fmt.Errorf("%w: it takes turns with its neighbours on the GPU, so predictions of groups are wrong; "+
	"look whether a wrapper of the worker or a file of the service manager sets CUDA_MPS_PIPE_DIRECTORY or CUDA_VISIBLE_DEVICES, "+
	`and run overlapd check; or set mode = "off" in [mps]`, errOutside)

// joins sees to it that workers are clients of the MPS of their part. A worker
// whose environment is wrong runs beside MPS and does not notice. It stands
// between the executor and the scheduler goroutine: what it asks, it asks in the
// goroutine of the worker's supervisor, which has nothing else to do then.
type joins struct {
	life    context.Context
	client  func(ctx context.Context, pid int) (bool, error)
	replace func(id models.ServiceID, cause error) error
	pass    func(executor.Event) // to the scheduler goroutine
	told    func(joinNews)
	pause   time.Duration
	limit   time.Duration // on asking for one worker

	mu struct {
		sync.Mutex
		of    map[models.ServiceID]*join
		fault error // why MPS cannot be asked, which is told once; nil if it can
	}
}

// join is how the workers of a service fared.
type join struct {
	outside  uint64 // workers that were no clients
	row      int    // of them, since the last that was one
	standing bool   // the one that serves is none
}

// joinNews is what people are told of a service.
type joinNews struct {
	service  models.ServiceID
	pid      int
	fault    error
	replaced bool // by another worker; else it serves
	unknown  bool // MPS cannot be asked
}

// event passes on what happens to workers, but not that one is ready that is to
// be replaced.
func (j *joins) event(e executor.Event) {
	switch e := e.(type) {
	case executor.WorkerReady:
		if !j.serves(&e) {
			return
		}
	case executor.WorkerStopped:
		j.forget(e.Service)
	}
	j.pass(e)
}

// serves reports whether a worker that is ready may take queries.
func (j *joins) serves(e *executor.WorkerReady) bool {
	client, err := j.ask(e.PID)
	if j.life.Err() != nil {
		return true
	}
	news := joinNews{service: e.Service, pid: e.PID}
	switch {
	case err != nil:
		if j.cannot(err) {
			news.fault, news.unknown = err, true
			j.told(news)
		}
		return true
	case client:
		j.joined(e.Service)
		return true
	}
	news.fault = errServesOutside
	news.replaced = j.missed(e.Service) <= joinReplacements && j.replace(e.Service, errOutside) == nil
	if !news.replaced {
		j.stand(e.Service)
	}
	j.told(news)
	return !news.replaced
}

// ask asks whether a process is a client, a few times if it is not listed: the
// list may be a moment behind.
func (j *joins) ask(pid int) (client bool, err error) {
	ctx, cancel := context.WithTimeout(j.life, j.limit)
	defer cancel()
	for n := 1; ; n++ {
		if client, err = j.client(ctx, pid); client || err != nil || n == joinAsks {
			return client, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(j.pause):
		}
	}
}

// cannot notes why MPS cannot be asked, and reports whether that is news.
func (j *joins) cannot(err error) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	news := j.mu.fault == nil
	j.mu.fault = err
	return news
}

func (j *joins) joined(id models.ServiceID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.fault = nil
	s := j.atLocked(id)
	s.row, s.standing = 0, false
}

// missed counts a worker that is no client and returns how many there were in a
// row.
func (j *joins) missed(id models.ServiceID) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.fault = nil
	s := j.atLocked(id)
	s.outside++
	s.row++
	return s.row
}

func (j *joins) stand(id models.ServiceID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.atLocked(id).standing = true
}

// inherit lets a service go on with the count of the one whose place it takes.
func (j *joins) inherit(from, to models.ServiceID) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if old := j.mu.of[from]; old != nil {
		j.atLocked(to).outside += old.outside
		old.outside = 0
	}
}

// forget forgets a service that is no more: another may take its place.
func (j *joins) forget(id models.ServiceID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.mu.of, id)
}

func (j *joins) atLocked(id models.ServiceID) *join {
	if j.mu.of[id] == nil {
		j.mu.of[id] = &join{}
	}
	return j.mu.of[id]
}

// of returns how the workers of a service fared. Without MPS there is nothing
// to tell.
func (j *joins) of(id models.ServiceID) (s join) {
	if j == nil {
		return s
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if known := j.mu.of[id]; known != nil {
		s = *known
	}
	return s
}

// fault returns why MPS cannot be asked, nil if it can.
func (j *joins) fault() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.fault
}

// workerEvents returns who is told what happens to workers: the scheduler
// goroutine, by way of MPS if that is on. Asking may take as long as limit, 0 for
// joinTimeout.
func (b *backend) workerEvents(limit time.Duration) func(executor.Event) {
	if b.part == nil || b.part.Events() == nil {
		return b.event
	}
	if limit == 0 {
		limit = joinTimeout
	}
	b.joins = &joins{
		life: b.life, client: b.part.HasClient, replace: b.replaceWorker, pass: b.event, told: b.tellJoin, pause: joinPause, limit: limit,
	}
	b.joins.mu.of = map[models.ServiceID]*join{}
	return b.joins.event
}

// replacer replaces single workers. The executor is one.
type replacer interface {
	Replace(id models.ServiceID, cause error) error
}

func (b *backend) replaceWorker(id models.ServiceID, cause error) error {
	r, ok := b.exec.(replacer)
	if !ok {
		return fmt.Errorf("this executor replaces no workers: %w", cause)
	}
	return r.Replace(id, cause)
}

// tellJoin writes the news into the log, from the goroutine that knows the names.
func (b *backend) tellJoin(n joinNews) {
	b.tell(message{ask: func(l *loop) {
		log := l.log.With().Str("gpu", l.part.UUID).Str("service", l.name(n.service)).Int("pid", n.pid).Logger()
		switch {
		case n.unknown:
			log.Warn().Err(n.fault).Msg("MPS cannot be asked whether workers are its clients; they serve, and this is told once")
		case n.replaced:
			log.Error().Err(n.fault).Msg("worker is replaced")
		default:
			log.Error().Err(n.fault).Int("replaced", joinReplacements).Msg("worker serves outside of MPS")
		}
	}})
}

// OutsideOverview is that workers of a service were no clients of MPS.
type OutsideOverview struct {
	Workers uint64 `json:"workers"`         // that were none, since the daemon started
	Fault   string `json:"fault,omitempty"` // of the one that serves, "" if it is a client
}

// tellJoins adds to an overview how workers and MPS get on.
func (l *loop) tellJoins(o *Overview) {
	if l.joins == nil || len(o.GPU) == 0 || o.GPU[0].MPS == nil {
		return
	}
	mps := o.GPU[0].MPS
	if err := l.joins.fault(); err != nil && mps.Fault == "" {
		mps.Fault = "whether workers are its clients is not known: " + err.Error()
	}
	for i, service := range l.Services() {
		s := l.joins.of(service.ID)
		if s.outside == 0 {
			continue
		}
		o.Services[i].OutsideMPS = &OutsideOverview{Workers: s.outside}
		if s.standing {
			o.Services[i].OutsideMPS.Fault = errServesOutside.Error()
			mps.Outside = append(mps.Outside, o.Services[i].Name)
		}
	}
	slices.Sort(mps.Outside)
}
