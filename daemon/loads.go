package daemon

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/overlapd/overlapd/daemon/rpc"
	"github.com/overlapd/overlapd/daemon/status"
)

const (
	// reportEvery is how long a load report holds. Those who ask meanwhile share it.
	reportEvery = 250 * time.Millisecond

	// reportWait is how long the one who has a report made waits for the status. If there
	// is none in time, the last one is taken.
	reportWait = 5 * time.Millisecond

	// reportSamples is how many reports rates are taken over at most, and reportWindow how far
	// back they go.
	reportSamples = 8
	reportWindow  = reportSamples * reportEvery

	// reportUnasked is how often a report is made while nobody asks, so that the first who
	// does gets one of the latest load.
	reportUnasked = time.Second

	// reportStalled is how old a status may be. Behind an older one nothing is scheduled any
	// more, and nobody is to send queries.
	reportStalled = 2 * time.Second

	// noRoom is the share of a service that is not to be asked, and the largest of others:
	// among daemons that are all late, the one that is least so has to be told apart.
	noRoom = 10
)

// loadReports makes what a balancer is told of the load (ORCA), of statuses: as often as
// somebody asks, and seldom while nobody does.
type loadReports struct {
	status  func() *status.Status
	devices float64
	epoch   time.Time
	due     atomic.Int64 // when the next report is made, since the epoch
	latest  atomic.Pointer[loadReport]
	making  atomic.Bool  // guards samples
	samples []loadSample // the oldest first
}

// loadSample is what a status has counted. Services are without variants.
type loadSample struct {
	at       time.Duration
	busy     float64 // seconds of devices
	services map[string]serviceCounts
	used     map[string]float64 // as of a report, at that moment
}

// serviceCounts counts queries, and those of them that were not answered in time.
type serviceCounts struct{ ended, missed uint64 }

// loadReport is the load at one moment, which nobody changes.
type loadReport struct {
	utilization float64                 // what weights are made of: the share of their time that devices were busy, and more where queries wait
	rates       map[string]serviceRates // by service, "" for all
	used        map[string]float64      // of the target of each service that has one
}

// serviceRates are per second.
type serviceRates struct{ ended, missed float64 }

// text returns the report for a service, "" for all, in a form of query.HeaderLoadForm; "" if
// nothing is known.
func (r *loadReports) text(service, form string) string {
	r.refresh()
	l := r.latest.Load()
	if l == nil {
		return ""
	}
	used := l.used
	if service != "" {
		used = map[string]float64{}
		if share, ok := l.used[service]; ok {
			used[service] = share
		}
	}
	rates := l.rates[service]
	return rpc.EncodeLoad(form, l.utilization, rates.ended, rates.missed, used)
}

// keep makes reports while nobody asks, until ctx ends.
func (r *loadReports) keep(ctx context.Context) {
	tick := time.NewTicker(reportUnasked)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.refresh()
		case <-ctx.Done():
			return
		}
	}
}

// refresh makes a report if the last one does not hold any more.
func (r *loadReports) refresh() {
	if now, due := time.Since(r.epoch), r.due.Load(); int64(now) >= due && r.due.CompareAndSwap(due, int64(now+reportEvery)) {
		r.renew()
	}
}

// renew publishes a report of now, unless somebody else does.
func (r *loadReports) renew() {
	if !r.making.CompareAndSwap(false, true) {
		return
	}
	defer r.making.Store(false)
	s := r.status()
	if s.At == 0 { // there is no status yet
		return
	}
	now := sampleOf(s)
	r.samples = append(r.samples[max(0, len(r.samples)+1-reportSamples):], now)
	for len(r.samples) > 2 && r.samples[1].at <= now.at-reportWindow {
		r.samples = r.samples[1:]
	}
	l := now.since(&r.samples[0], r.devices)
	full := s.Age > reportStalled || s.Draining
	l.shares(s.Services, full)
	r.samples[len(r.samples)-1].used = l.used
	l.used = r.mean(l.used)
	// A weight is queries over utilization, so this has to grow as the queries do. The busy
	// time does so until rounds follow on each other, and then does not; what a query would
	// take of its target hardly grows before, and steeply then.
	most := 0.0
	for i := range s.Services {
		if name, _, _ := strings.Cut(s.Services[i].Name, "/"); s.Services[i].Ready {
			most = max(most, l.used[name])
		}
	}
	if l.utilization *= 1 + most; full {
		l.utilization = noRoom
	}
	r.latest.Store(l)
}

// mean returns the shares of now, each as the mean over the samples where there was room. What
// waits at one instant is noise, which adds up in the weights that balancers make of it.
func (r *loadReports) mean(now map[string]float64) map[string]float64 {
	means := map[string]float64{}
	for name, share := range now {
		sum, n := 0.0, 0.0
		for i := range r.samples {
			if before, ok := r.samples[i].used[name]; ok && before < noRoom {
				sum, n = sum+before, n+1
			}
		}
		if means[name] = share; share < noRoom {
			means[name] = sum / n
		}
	}
	return means
}

// sampleOf returns the counts of a status.
func sampleOf(s *status.Status) loadSample {
	o := loadSample{at: s.At, busy: s.BusySeconds, services: map[string]serviceCounts{}}
	for i := range s.Services {
		of := &s.Services[i]
		missed := of.Late
		for _, reasons := range []map[string]uint64{of.Refused, of.Dropped, of.Failed} {
			for _, n := range reasons {
				missed += n
			}
		}
		name, _, _ := strings.Cut(of.Name, "/")
		sum := o.services[name]
		sum.ended, sum.missed = sum.ended+of.Finished-of.Late+missed, sum.missed+missed
		o.services[name] = sum
	}
	return o
}

// since returns the rates of what was counted after a sample. A service that was replaced
// counts from zero, and has none until the next report.
func (s *loadSample) since(before *loadSample, devices float64) *loadReport {
	l := &loadReport{rates: map[string]serviceRates{}, used: map[string]float64{}}
	seconds := (s.at - before.at).Seconds()
	if seconds <= 0 {
		return l
	}
	l.utilization = min(max((s.busy-before.busy)/seconds/devices, 0), 1)
	rate := func(now, then uint64) float64 { return float64(max(now, then)-then) / seconds }
	var all serviceRates
	for name, n := range s.services {
		was := before.services[name]
		one := serviceRates{rate(n.ended, was.ended), rate(n.missed, was.missed)}
		all.ended, all.missed = all.ended+one.ended, all.missed+one.missed
		l.rates[name] = one
	}
	l.rates[""] = all
	return l
}

// shares adds which part of the target of each service a query would take that came now, by
// that of its variants which would take least. A daemon that is full has room for none.
func (l *loadReport) shares(services []status.Service, full bool) {
	for i := range services {
		s := &services[i]
		if s.BestEffort {
			continue
		}
		name, _, _ := strings.Cut(s.Name, "/")
		share := s.TargetShare
		if full || !s.Ready {
			share = noRoom
		}
		if least, ok := l.used[name]; ok {
			share = min(share, least)
		}
		l.used[name] = min(max(share, 0), noRoom)
	}
}
