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
	// reportEvery is how long a load report is reused.
	reportEvery = 250 * time.Millisecond

	// reportWait is how long making a report waits for a new status. After that it uses the
	// last one: it delays the response of a query.
	reportWait = 5 * time.Millisecond

	// reportSamples is the maximum number of statuses that rates are computed from, and
	// reportWindow how far back they go.
	reportSamples = 8
	reportWindow  = reportSamples * reportEvery

	// reportUnasked is how often a report is made without a request, so that the first
	// request receives a current load.
	reportUnasked = time.Second

	// reportStalled is the age of a status beyond which the scheduler counts as stalled, so
	// that balancers send no queries here.
	reportStalled = 2 * time.Second

	// noRoom is the share reported for a service that should receive no queries, and the
	// maximum for others. It is above 1 because, if all daemons are late, balancers must
	// still be able to tell which is the least late.
	noRoom = 10
)

// loadReports makes the load reports (ORCA) for load balancers from statuses: on request,
// and every reportUnasked without requests.
type loadReports struct {
	status  func() *status.Status
	devices float64
	epoch   time.Time

	// due is when the next report is made, since epoch.
	due    atomic.Int64
	latest atomic.Pointer[loadReport]

	// making guards samples, which are in order of time. A second goroutine does not wait
	// but uses the last report.
	making  atomic.Bool
	samples []loadSample
}

// loadSample is the counts of one status. Variants are counted under their service.
type loadSample struct {
	at time.Duration

	// busy is the device time in seconds.
	busy     float64
	services map[string]serviceCounts

	// used is the share of the target as in a report, at that moment.
	used map[string]float64
}

// serviceCounts counts the ended queries of a service, and those that were not answered in
// time.
type serviceCounts struct{ ended, missed uint64 }

// loadReport is the load at one moment. It is immutable.
type loadReport struct {
	// utilization is what balancers compute weights from: the fraction of the time that
	// devices were busy, increased when queries are queued.
	utilization float64

	// rates is indexed by service, "" for all.
	rates map[string]serviceRates

	// used is the fraction of its target that a query would take, by service. Best-effort
	// services have none.
	used map[string]float64
}

// serviceRates are queries per second.
type serviceRates struct{ ended, missed float64 }

// text returns the report for a service ("" for all) in a form of query.HeaderLoadForm, or
// "" if nothing is known yet.
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

// keep makes reports without requests until ctx is done.
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

// refresh makes a report if the last one is too old.
func (r *loadReports) refresh() {
	if now, due := time.Since(r.epoch), r.due.Load(); int64(now) >= due && r.due.CompareAndSwap(due, int64(now+reportEvery)) {
		r.renew()
	}
}

// renew makes and publishes a report, unless another goroutine is doing so.
func (r *loadReports) renew() {
	if !r.making.CompareAndSwap(false, true) {
		return
	}
	defer r.making.Store(false)
	s := r.status()
	// There is no status yet.
	if s.At == 0 {
		return
	}
	now := sampleOf(s)
	r.samples = append(r.samples[max(0, len(r.samples)+1-reportSamples):], now)
	for len(r.samples) > 2 && r.samples[1].at <= now.at-reportWindow {
		r.samples = r.samples[1:]
	}
	l := now.since(&r.samples[0], r.devices)
	// No queries should be sent to a stalled or drained daemon.
	full := s.Age > reportStalled || s.Draining
	l.shares(s.Services, full)
	r.samples[len(r.samples)-1].used = l.used
	l.used = r.mean(l.used)
	// A balancer's weight is queries divided by utilization, so utilization must grow with
	// the load. Busy time does so only until rounds follow each other without gaps. The
	// share of the target hardly grows before that point, and steeply after it. Their
	// product covers both.
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

// mean returns each share as the mean over the samples in which there was room. The queue
// at one instant is noise, which would accumulate in the weights that balancers compute.
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

// since returns the rates since an earlier sample. A service that was replaced counts from
// zero, so its rate is 0 until the next report.
func (s *loadSample) since(before *loadSample, devices float64) *loadReport {
	l := &loadReport{rates: map[string]serviceRates{}, used: map[string]float64{}}
	seconds := (s.at - before.at).Seconds()
	if seconds <= 0 {
		return l
	}
	// A round counts when it ends, so the quotient can exceed 1 for a moment.
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

// shares adds the fraction of its target that a query would take now, for each service.
// With variants, the fastest counts. With full set, no service has room.
func (l *loadReport) shares(services []status.Service, full bool) {
	for i := range services {
		s := &services[i]
		if s.BestEffort {
			continue
		}
		name, _, _ := strings.Cut(s.Name, "/")
		share := s.TargetShare
		if full || !s.Ready {
			// A service without a worker has no room, whatever its queue is.
			share = noRoom
		}
		if least, ok := l.used[name]; ok {
			share = min(share, least)
		}
		l.used[name] = min(max(share, 0), noRoom)
	}
}
