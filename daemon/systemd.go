package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
)

// How a service manager is kept informed.
const (
	// loadingReport and servingReport are how often the daemon looks whether
	// there is news: often while somebody waits for it, and seldom while nobody does, as each
	// look wakes a processor that may have nothing else to do.
	loadingReport = 50 * time.Millisecond
	servingReport = 2 * time.Second

	// extendEvery is how often a daemon that loads asks for more time, and
	// extendBy is how much it asks for: what its scheduler goroutine may stall
	// and a little more.
	extendEvery = 5 * time.Second
	extendBy    = loop.Stalled + 2*extendEvery

	// stopSlack is what stopping takes at most after the last answer: the
	// workers end and the state file is closed.
	stopSlack = 15 * time.Second

	// queueTime is how long connections may wait for services that still load once another
	// one is ready, which must not wait for them.
	queueTime = 10 * time.Second

	// watchdogShare is how many signs of life are given in the time in which
	// the manager wants one, so that one may be late.
	watchdogShare = 3
)

// Manager is the service manager that started the daemon, such as systemd. The words are those of sd_notify(3).
type Manager struct {
	Tell     func(state string) error // one notification, of one or more lines
	Watchdog time.Duration            // within which it wants a sign of life, 0 for never
	Ready    func(without []string)   // called once, when READY=1 is told; the services that were given up
}

// Report informs a manager when the daemon is ready, when it stops, and that it
// lives, until ended. Stopping ends when the daemon begins to stop.
//
// READY=1 is told when no service loads any more and one at least can answer,
// not when the endpoint listens: until then every query would be refused. A
// service that was given up does not keep the others from being ready. While
// services load, more time is asked for, for as long as they may take.
//
// WATCHDOG=1 is told only if the scheduler goroutine has shown that it runs
// since the last one. The watchdog thus fires when nothing is scheduled any
// more, however well the rest of the process does.
func (d *Daemon) Report(stopping, ended context.Context, m Manager) {
	h := newHerald(d.Config(), m.Watchdog)
	tick := time.NewTicker(loadingReport)
	defer tick.Stop()
	stop := stopping.Done()
	for last := false; ; {
		ready := h.announced
		s := d.standing()
		if s.stopping = stopping.Err() != nil; s.stopping {
			h.draining = drainingTime(d.Config().DrainTimeout) // which a reload may have changed
		}
		if states := h.step(d.backend.Now(), s); len(states) > 0 {
			if err := m.Tell(strings.Join(states, "\n")); err != nil {
				d.log.Warn().Err(err).Msg("telling the service manager")
			}
		}
		if h.announced && !ready {
			tick.Reset(servingReport)
			m.Ready(s.givenUp)
		}
		if last {
			return
		}
		select {
		case <-tick.C:
		case <-stop:
			stop = nil
		case <-ended.Done():
			if s.stopping || stopping.Err() == nil {
				return
			}
			last = true // a daemon that stops at once must tell that it does
		}
	}
}

// awaitServices waits until no service loads any more, or the first that is ready has waited
// for queueTime. It returns false if ctx ends before.
func (d *Daemon) awaitServices(ctx context.Context) bool {
	tick := time.NewTicker(loadingReport)
	defer tick.Stop()
	var enough <-chan time.Time
	for {
		s := d.standing()
		if s.loading() == 0 {
			return true
		}
		if s.ready > 0 && enough == nil {
			enough = time.After(queueTime)
		}
		select {
		case <-tick.C:
		case <-enough:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// standing is how the daemon does, as a manager sees it.
type standing struct {
	beat     time.Duration // the last sign of the scheduler goroutine, since the epoch
	services int
	ready    int
	givenUp  []string
	stopping bool
}

// standing returns how the daemon does.
func (d *Daemon) standing() standing {
	s := standing{beat: d.backend.Beat()}
	for _, service := range d.backend.Services() {
		s.services++
		switch {
		case service.Ready():
			s.ready++
		case service.GivenUp.Load():
			s.givenUp = append(s.givenUp, service.Name)
		}
	}
	return s
}

// loading returns how many services may still become ready.
func (s *standing) loading() int { return s.services - s.ready - len(s.givenUp) }

func (s *standing) text() string {
	verb := "serving"
	switch {
	case s.stopping:
		return "stopping: answering what was accepted"
	case s.ready == 0 && s.loading() > 0:
		verb = "loading"
	}
	text := fmt.Sprintf("%s, services ready: %d of %d", verb, s.ready, s.services)
	if len(s.givenUp) > 0 {
		text += "; given up: " + strings.Join(s.givenUp, ", ")
	}
	return text
}

// herald decides what a manager is told. Time is an argument.
type herald struct {
	watchdog time.Duration
	loading  time.Duration // more time is asked for until then
	draining time.Duration // how long stopping may take

	announced bool
	stopping  bool
	status    string
	fed       pulse // the last WATCHDOG=1
	extended  pulse // the last EXTEND_TIMEOUT_USEC
}

// pulse is when something was told, and the sign of life that stood behind it.
type pulse struct{ told, beat time.Duration }

// due reports whether it may be sent again, and remembers that it is.
func (p *pulse) due(now, beat, every time.Duration) bool {
	if beat == p.beat || p.told != 0 && now-p.told < every {
		return false
	}
	*p = pulse{told: now, beat: beat}
	return true
}

func newHerald(c config.Config, watchdog time.Duration) *herald {
	return &herald{
		watchdog: watchdog,
		loading:  c.Worker.LoadTimeout * time.Duration(len(c.Services)+1),
		draining: drainingTime(c.DrainTimeout),
	}
}

// drainingTime returns how long stopping may take.
func drainingTime(timeout time.Duration) time.Duration { return timeout + refuseTime + stopSlack }

// step returns what is to be told now.
func (h *herald) step(now time.Duration, s standing) (states []string) {
	switch {
	case s.stopping && !h.stopping:
		h.stopping = true
		states = append(states, "STOPPING=1", extension(h.draining))
	case s.stopping, h.announced:
	case s.loading() == 0 && s.ready > 0:
		h.announced = true
		states = append(states, "READY=1")
	case s.loading() > 0 && now < h.loading && h.extended.due(now, s.beat, extendEvery):
		states = append(states, extension(extendBy))
	}
	if h.watchdog > 0 && h.fed.due(now, s.beat, h.watchdog/watchdogShare) {
		states = append(states, "WATCHDOG=1")
	}
	if text := s.text(); text != h.status {
		h.status = text
		states = append(states, "STATUS="+text)
	}
	return states
}

func extension(by time.Duration) string {
	return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", by.Microseconds())
}

// Reloading informs a manager that the configuration is read again, and asks for
// more time until the function that it returns is called, which reports the end.
// Its error joins those of all messages. It is for a manager that was sent READY=1
// already: it takes any other reload for the start.
func (m Manager) Reloading() (ended func() error) {
	var now unix.Timespec // by the clock that systemd compares it with
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	err := m.Tell(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d\n%s", now.Nano()/int64(time.Microsecond), extension(extendBy)))
	end, done := make(chan struct{}), make(chan error)
	go func() { done <- m.extend(end) }()
	return func() error {
		close(end)
		return errors.Join(err, <-done, m.Tell("READY=1"))
	}
}

// extend asks for more time until it is ended.
func (m Manager) extend(end <-chan struct{}) (err error) {
	tick := time.NewTicker(extendEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			err = m.Tell(extension(extendBy))
		case <-end:
			return err
		}
	}
}
