package serving

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/textfile"
)

// running is the part of [daemon.Daemon] that a reloader uses. Tests have another, since a daemon takes
// seconds to open.
type running interface {
	Reload(ctx context.Context, c config.Config, progress func(config.Step)) (*config.Reloaded, error)
	Restart(service string) error
	Leave(leaves bool)
	Open() (open map[string]int64, ended uint64)
	Config() config.Config
}

// reloader is the [admin.Host] of a daemon: it makes it follow its configuration
// file, and logs each change. It exists before the daemon, which may take minutes to
// open: until then daemon is nil, and every request is answered by errOpening.
type reloader struct {
	read func() (config.Config, error)
	tell func(state string) error
	log  zerolog.Logger

	// announced is set once systemd knows that the daemon is ready. A reload
	// before that is not reported to it.
	announced atomic.Bool

	daemon atomic.Pointer[running]
}

// errOpening has the kind that tells clients to try again, as for a reload during another.
var errOpening = &admin.Error{Kind: admin.KindBusy, Message: "the daemon is still opening its state and models; try again in a moment"}

// follow passes requests on to a daemon from now on.
func (r *reloader) follow(d running) { r.daemon.Store(&d) }

// opened returns the daemon, if it is open.
func (r *reloader) opened() (running, error) {
	if d := r.daemon.Load(); d != nil {
		return *d, nil
	}
	return nil, errOpening
}

// Reload reads the configuration again and has the daemon follow it. A file that is wrong is refused
// before the daemon hears of it, so that it serves on as if nobody had asked.
func (r *reloader) Reload(ctx context.Context, progress func(config.Step)) (*config.Reloaded, error) {
	d, err := r.opened()
	if err != nil {
		return nil, err
	}
	r.log.Info().Msg("reloading the configuration")
	// systemd takes READY=1 for the end of a reload, which before the start is over would announce a
	// daemon that is not ready.
	if r.announced.Load() {
		ended := daemon.Manager{Tell: r.tell}.Reloading()
		defer func() {
			if err := ended(); err != nil {
				r.log.Warn().Err(err).Msg("notifying the service manager of the reload failed")
			}
		}()
	}
	c, err := textfile.Within(ctx, "the configuration", r.read)
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

// Restart starts a service again that failed permanently.
func (r *reloader) Restart(service string) error {
	d, err := r.opened()
	if err != nil {
		return err
	}
	return kindOf(d.Restart(service))
}

// Leave makes the daemon report that it is not ready, or ready again.
func (r *reloader) Leave(leaves bool) error {
	d, err := r.opened()
	if err != nil {
		return err
	}
	d.Leave(leaves)
	if leaves {
		r.log.Info().Msg("draining: reports not ready, answers queries until stopped")
	} else {
		r.log.Info().Msg("draining cancelled")
	}
	return nil
}

// Open returns how many queries of each service are open, and how many have ended since the start.
func (r *reloader) Open() (open map[string]int64, ended uint64, err error) {
	d, err := r.opened()
	if err == nil {
		open, ended = d.Open()
	}
	return open, ended, err
}

// Config returns the configuration that is in force, which need not be the one in the file.
func (r *reloader) Config() ([]byte, error) {
	d, err := r.opened()
	if err != nil {
		return nil, err
	}
	return d.Config().TOML(), nil
}

// kindOf translates an error of the daemon for clients of the admin socket, whose exit status depends on
// the kind. What is left without one is a failure.
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

// sayRefused logs why a configuration was not taken, in one line: a file may have many faults, and each
// would else be an error of its own that nobody can tell from those of other reloads.
func (r *reloader) sayRefused(err error) {
	if faults, ok := errors.AsType[config.Faults](err); ok {
		r.log.Error().Str("error", strings.ReplaceAll(faults.Error(), "\n", "; ")).Msg("configuration invalid; nothing was changed")
		return
	}
	r.log.Error().Err(err).Msg("reading the configuration failed")
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
			r.log.Warn().Str("key", c.name).Msg("setting differs in the file; it takes effect after a restart")
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
	end.Dur("took", done.Took.Round(time.Millisecond)).Msg("configuration reloaded")
}
