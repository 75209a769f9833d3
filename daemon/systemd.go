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

// Intervals for keeping a service manager informed.
const (
	// loadingReport and servingReport are how often the daemon checks for news: often while
	// it loads, when somebody waits for it, and rarely afterwards, because each check wakes
	// up a processor that may be idle.
	loadingReport = 50 * time.Millisecond
	servingReport = 2 * time.Second

	// extendEvery is how often a loading daemon asks for more time. extendBy is how much it
	// asks for: the time after which its scheduler goroutine counts as stalled, and some
	// more.
	extendEvery = 5 * time.Second
	extendBy    = loop.Stalled + 2*extendEvery

	// stopSlack is how long stopping takes after the last answer: workers exit and the
	// state file is closed.
	stopSlack = 15 * time.Second

	// queueTime is how long connections to an inherited socket may wait for services that
	// are still loading once one is ready: its clients must not wait for the others.
	queueTime = 10 * time.Second

	// watchdogShare is the number of watchdog notifications in the interval in which the
	// manager expects one, so that one may be late.
	watchdogShare = 3
)

// Manager is the service manager that started the daemon, such as systemd. Notifications
// are as in sd_notify(3).
type Manager struct {
	// Tell sends a notification of one or more lines.
	Tell func(state string) error

	// Watchdog is the interval in which it expects WATCHDOG=1, 0 for none.
	Watchdog time.Duration

	// Ready is called once, after READY=1, with the services that have failed permanently.
	Ready func(without []string)
}

// Report informs a manager when the daemon is ready, when it stops, and that it is alive,
// until ended is done. stopping is done when the daemon begins to stop.
//
// READY=1 is sent when no service is loading any more and at least one can answer. It is
// not sent when the endpoint begins to listen, because until then every query would be
// rejected. A service that failed permanently does not keep the others from being ready.
// While services are loading, the manager is asked for more time, as long as they may take.
//
// WATCHDOG=1 is sent only if the scheduler goroutine has completed a turn since the last
// one. The watchdog thus fires when nothing is scheduled any more, even if the rest of the
// process works.
func (d *Daemon) Report(stopping, ended context.Context, m Manager) {
	n := newNotifier(d.Config(), m.Watchdog)
	tick := time.NewTicker(loadingReport)
	defer tick.Stop()
	stop := stopping.Done()
	for last := false; ; {
		ready := n.announced
		s := d.standing()
		if s.stopping = stopping.Err() != nil; s.stopping {
			n.draining = drainingTime(d.Config().DrainTimeout) // a reload may have changed it
		}
		if states := n.step(d.backend.Now(), s); len(states) > 0 {
			if err := m.Tell(strings.Join(states, "\n")); err != nil {
				d.log.Warn().Err(err).Msg("notifying the service manager failed")
			}
		}
		if n.announced && !ready {
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
			last = true // even a daemon that stops immediately must report it
		}
	}
}

// awaitServices waits until no service is loading any more, or until queueTime after the
// first one is ready. It returns false if ctx is done before.
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

// standing is the state of the daemon that matters to a manager.
type standing struct {
	// beat is when the scheduler goroutine last completed a turn, since the epoch.
	beat     time.Duration
	services int
	ready    int
	givenUp  []string
	stopping bool
}

// standing returns the current state.
func (d *Daemon) standing() standing {
	s := standing{beat: d.backend.Beat()}
	for _, service := range d.backend.Services() {
		if service.Asleep != nil {
			continue // nobody waits for it
		}
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

// loading returns the number of services that may still become ready.
func (s *standing) loading() int { return s.services - s.ready - len(s.givenUp) }

// text is the STATUS that a manager shows.
func (s *standing) text() string {
	verb := "serving"
	switch {
	case s.stopping:
		return "stopping: answering the accepted queries"
	case s.ready == 0 && s.loading() > 0:
		verb = "loading"
	}
	text := fmt.Sprintf("%s, services ready: %d of %d", verb, s.ready, s.services)
	if len(s.givenUp) > 0 {
		text += "; failed permanently: " + strings.Join(s.givenUp, ", ")
	}
	return text
}

// notifier decides which notifications to send. The time is an argument, so it can be tested
// without waiting.
type notifier struct {
	watchdog time.Duration

	// loading is until when a loading daemon asks for more time. draining is how long
	// stopping may take.
	loading  time.Duration
	draining time.Duration

	announced bool
	stopping  bool
	status    string

	// fed is the last WATCHDOG=1, extended the last EXTEND_TIMEOUT_USEC.
	fed      pulse
	extended pulse
}

// pulse is when a notification was sent, and the beat that justified it.
type pulse struct{ told, beat time.Duration }

// due reports whether the notification may be sent again, and then records that it was.
// There must have been a new beat, and the interval must have passed.
func (p *pulse) due(now, beat, every time.Duration) bool {
	if beat == p.beat || p.told != 0 && now-p.told < every {
		return false
	}
	*p = pulse{told: now, beat: beat}
	return true
}

// newNotifier returns the state before the first notification.
func newNotifier(c config.Config, watchdog time.Duration) *notifier {
	return &notifier{
		watchdog: watchdog,
		loading:  c.Worker.LoadTimeout * time.Duration(len(c.Services)+1),
		draining: drainingTime(c.DrainTimeout),
	}
}

// drainingTime returns how long stopping may take with a given drain timeout.
func drainingTime(timeout time.Duration) time.Duration { return timeout + refuseTime + stopSlack }

// step returns the notifications to send now.
func (n *notifier) step(now time.Duration, s standing) (states []string) {
	switch {
	case s.stopping && !n.stopping:
		n.stopping = true
		states = append(states, "STOPPING=1", extension(n.draining))
	// READY=1 is sent once, and nothing but the watchdog and the status follows it.
	case s.stopping, n.announced:
	case s.loading() == 0 && s.ready > 0:
		n.announced = true
		states = append(states, "READY=1")
	case s.loading() > 0 && now < n.loading && n.extended.due(now, s.beat, extendEvery):
		states = append(states, extension(extendBy))
	}
	if n.watchdog > 0 && n.fed.due(now, s.beat, n.watchdog/watchdogShare) {
		states = append(states, "WATCHDOG=1")
	}
	if text := s.text(); text != n.status {
		n.status = text
		states = append(states, "STATUS="+text)
	}
	return states
}

// extension returns a notification that asks for more time.
func extension(by time.Duration) string {
	return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", by.Microseconds())
}

// Reloading informs a manager that a reload has begun, and asks for more time until the
// returned function is called, which reports the end. The error of that function joins
// those of all notifications. It must only be called after READY=1: otherwise the manager
// would take the end of the reload for the end of the start.
func (m Manager) Reloading() (ended func() error) {
	var now unix.Timespec // systemd compares the times of this clock
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	err := m.Tell(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d\n%s", now.Nano()/int64(time.Microsecond), extension(extendBy)))
	// The reload itself runs in the caller, so a goroutine asks for more time meanwhile.
	end, done := make(chan struct{}), make(chan error)
	go func() { done <- m.extend(end) }()
	return func() error {
		close(end)
		return errors.Join(err, <-done, m.Tell("READY=1"))
	}
}

// extend asks for more time every extendEvery until end is closed.
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
