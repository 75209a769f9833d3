package load

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// leadIn is the time between the last preparation and the first request due.
const leadIn = 10 * time.Millisecond

// run is one run of the generator.
type run struct {
	options *Options
	daemon  *daemon
	clock   clock
	streams []*stream
	ended   time.Duration // when the last answer was in, or the run interrupted
	cpu     time.Duration // processor time used while sending
}

// Run puts load on a daemon and returns what it measured. When the context is
// cancelled, Run gives up the requests in flight and returns what it has.
//
// It starts one goroutine per connection, and one for the progress line; all
// have ended when it returns.
func Run(ctx context.Context, o Options) (*Result, error) {
	o, err := o.resolve()
	if err != nil {
		return nil, err
	}
	d, err := ask(ctx, &o)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	r := &run{options: &o, daemon: d}
	defer r.close()
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	r.execute()
	return r.result(ctx.Err() != nil), nil
}

// prepare makes all that sending needs, so that sending allocates nothing.
func (r *run) prepare(ctx context.Context) error {
	o := r.options
	for i, svc := range r.daemon.services {
		s := &stream{service: svc, rec: newRecorder(svc.target), timeout: o.Timeout, timed: o.open(), verify: o.Verify, end: o.Duration}
		if s.timed {
			s.due = o.arrivalsOf(i)
		}
		r.streams = append(r.streams, s)
	}
	// A connection that cannot be opened now is an error of the request that needs it.
	deadline := time.Now().Add(o.Timeout)
	for i := range o.Connections {
		w, err := newWaker(ctx)
		if err != nil {
			return err
		}
		c := newConn(ctx, r.daemon.addr, r.daemon.tls)
		s := r.streams[i%len(r.streams)]
		s.senders = append(s.senders, &sender{conn: c, waker: w, turn: i / len(r.streams)})
		_ = c.open(deadline)
	}
	runtime.GC()
	r.clock = clock{start: time.Now().Add(leadIn + o.Warmup)}
	for _, s := range r.streams {
		s.clock = r.clock
	}
	return nil
}

// arrivalsOf returns the times at which a service's requests are due.
func (o *Options) arrivalsOf(service int) []time.Duration {
	rate := o.Rate
	if !o.RatePerService {
		rate /= float64(len(o.Services))
	}
	phase := float64(service) / float64(len(o.Services))
	return schedule(o.Arrivals, rate, o.CV, -o.Warmup, o.Duration, phase, o.Seed, uint64(service))
}

// execute sends everything and waits for the answers, or for the end of the run.
func (r *run) execute() {
	defer r.showProgress()()
	before := cpuTime()
	var wg sync.WaitGroup
	for _, s := range r.streams {
		wg.Go(func() {
			time.Sleep(time.Until(r.clock.time(-r.options.Warmup)))
			s.run()
		})
	}
	wg.Wait()
	r.ended = r.clock.now()
	r.cpu = cpuTime() - before
}

func (r *run) close() {
	for _, s := range r.streams {
		for _, w := range s.senders {
			w.conn.close()
			w.waker.close()
		}
	}
}

// cpuTime returns the processor time that this process has used.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(fmt.Sprintf("load: getrusage: %v", err)) // its arguments are constant
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const progressInterval = 200 * time.Millisecond

// showProgress reports progress until the function it returns is called.
func (r *run) showProgress() (stop func()) {
	o := r.options
	if o.Progress == nil {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				var requests, failed int64
				for _, s := range r.streams {
					n, bad := s.rec.counts()
					requests, failed = requests+n, failed+bad
				}
				part := float64(r.clock.now()+o.Warmup) / float64(o.Warmup+o.Duration)
				o.Progress(fmt.Sprintf("%d requests, %d errors", requests, failed), min(max(part, 0), 1))
			case <-done:
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}
