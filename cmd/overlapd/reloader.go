package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
)

// running is the part of [daemon.Daemon] that a reloader uses. Tests have another.
type running interface {
	Reload(ctx context.Context, c config.Config, progress func(config.Step)) (*config.Reloaded, error)
	Restart(service string) error
	Config() config.Config
}

// reloader is the [admin.Host] of a daemon: it makes it follow its configuration
// file, and logs each change. It exists before the daemon, which may take minutes to
// open: until then mu.daemon is nil, and every request is answered by errOpening.
type reloader struct {
	read func() (config.Config, error)
	tell func(state string) error
	log  zerolog.Logger

	// announced is set once systemd knows that the daemon is ready. A reload
	// before that is not reported to it.
	announced atomic.Bool

	mu struct {
		sync.Mutex
		daemon running
	}
}

// errOpening is returned while the daemon is opened.
var errOpening = &admin.Error{Kind: admin.KindBusy, Message: "the daemon is still opening its state and its models; try again in a moment"}

// follow sets the daemon to change.
func (r *reloader) follow(d running) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.daemon = d
}

func (r *reloader) opened() (running, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.daemon == nil {
		return nil, errOpening
	}
	return r.mu.daemon, nil
}

// Reload implements [admin.Host].
func (r *reloader) Reload(ctx context.Context, progress func(config.Step)) (*config.Reloaded, error) {
	d, err := r.opened()
	if err != nil {
		return nil, err
	}
	r.log.Info().Msg("reading the configuration again")
	if r.announced.Load() {
		ended := daemon.Manager{Tell: r.tell}.Reloading()
		defer func() {
			if err := ended(); err != nil {
				r.log.Warn().Err(err).Msg("telling the service manager of the reload")
			}
		}()
	}
	c, err := r.read()
	if err != nil {
		r.sayRefused(err)
		return nil, err
	}
	done, err := d.Reload(ctx, c, progress)
	if done != nil {
		r.say(done)
	}
	if err != nil {
		r.sayRefused(err)
		return nil, kindOf(err)
	}
	return done, nil
}

// kindOf translates an error of the daemon for clients of the admin socket.
func kindOf(err error) error {
	switch {
	case errors.Is(err, daemon.ErrStopping):
		return admin.ErrStopping
	case errors.Is(err, daemon.ErrReloading):
		return admin.ErrBusy
	case errors.Is(err, daemon.ErrNoService):
		return &admin.Error{Kind: admin.KindNotFound, Message: err.Error()}
	case errors.Is(err, daemon.ErrNotGivenUp):
		return &admin.Error{Kind: admin.KindState, Message: err.Error()}
	}
	return err
}

func (r *reloader) sayRefused(err error) {
	if faults, ok := errors.AsType[config.Faults](err); ok {
		r.log.Error().Str("error", strings.ReplaceAll(faults.Error(), "\n", "; ")).Msg("the configuration is wrong; nothing was changed")
		return
	}
	r.log.Error().Err(err).Msg("the configuration could not be read again")
}

// say logs each change and, at the end, the time that the reload took.
func (r *reloader) say(done *config.Reloaded) {
	for _, c := range changeList(done) {
		switch {
		case c.fault != "":
			r.log.Error().Str("service", c.name).Str("error", c.fault).Msg("the service could not be " + c.verb + "; " + c.instead)
		case c.setting:
			r.log.Info().Str("key", c.name).Msg("the setting is " + c.verb)
		case c.later:
			r.log.Warn().Str("key", c.name).Msg("the setting is another in the file, which takes effect after a restart")
		default:
			r.log.Info().Str("service", c.name).Msg("the service is " + c.verb)
		}
	}
	end := r.log.Info()
	if len(done.Failed) > 0 {
		end = r.log.Error().Int("failed", len(done.Failed))
	}
	if done.None() {
		end = end.Bool("unchanged", true)
	}
	end.Dur("took", done.Took).Msg("the configuration was read again")
}

// Restart implements [admin.Host].
func (r *reloader) Restart(service string) error {
	d, err := r.opened()
	if err != nil {
		return err
	}
	return kindOf(d.Restart(service))
}

// Config implements [admin.Host].
func (r *reloader) Config() ([]byte, error) {
	d, err := r.opened()
	if err != nil {
		return nil, err
	}
	return d.Config().TOML(), nil
}

// hangupSignals returns a channel of SIGHUPs. It holds one more than is being
// handled, also while the daemon is opened.
func hangupSignals() (heard chan os.Signal, release func()) {
	heard = make(chan os.Signal, 1)
	signal.Notify(heard, unix.SIGHUP)
	return heard, func() { signal.Stop(heard) }
}

// onHangup begins a reload with each SIGHUP, one after the other, until
// stopping ends. A terminal that is gone sends SIGHUP as well. It stops the
// daemon, since nobody is left to do that.
func onHangup(stopping context.Context, heard <-chan os.Signal, reloads *admin.Reloads, stop func()) (wait func()) {
	interactive := term.IsTerminal(int(os.Stdin.Fd()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stopping.Done():
				return
			case <-heard:
			}
			if interactive && !term.IsTerminal(int(os.Stdin.Fd())) {
				stop()
				return
			}
			if run, err := reloads.Next(); err == nil { // it fails when the daemon stops
				<-run.Done()
			}
		}
	}()
	return func() { <-done }
}

// administer opens the admin socket, if the configuration has one, and answers
// there until released. A socket by default that cannot be opened does not keep the
// daemon from serving; one that the configuration asks for does.
func administer(c *config.Config, reloads *admin.Reloads, log zerolog.Logger) (release func(), err error) {
	path := c.AdminPath()
	if path == "" {
		return func() {}, nil
	}
	s, err := admin.Listen(path, c.Admin.Group, reloads, func(pid int, uid uint32) {
		log.Warn().Uint32("uid", uid).Int("pid", pid).Msg("refused somebody at the admin socket who may not use it")
	})
	if err != nil && (c.AdminChosen() || c.Admin.Group != "") {
		return nil, err
	}
	if err != nil {
		log.Warn().Err(err).Msg("there is no admin socket; SIGHUP reloads nevertheless")
		return func() {}, nil
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	log.Debug().Str("path", path).Msg("the admin socket is open")
	return func() {
		if err := errors.Join(s.Close(), <-served); err != nil {
			log.Warn().Err(err).Msg("closing the admin socket")
		}
	}, nil
}
