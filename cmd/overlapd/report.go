package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
)

// openTime is how long it may take to build what the configuration names of
// the zoo and to open the rest. From then on the daemon itself asks for time.
const openTime = 5 * time.Minute

// opening is what systemd is told first.
var opening = fmt.Sprintf("STATUS=opening the state and the models\nEXTEND_TIMEOUT_USEC=%d", openTime.Microseconds())

// report tells people and systemd how the daemon does. The function that it
// returns ends that and waits; it is to be called when the daemon has ended.
// Once systemd knows that the daemon is ready, announced is called.
func report(stopping context.Context, d *daemon.Daemon, c config.Config, log zerolog.Logger, announced func()) func() {
	started := time.Now()
	ended, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Report(stopping, ended, daemon.Manager{
			Tell:     notify,
			Watchdog: watchdog(log),
			Ready: func(without []string) {
				announced()
				sayReady(log, time.Since(started), without)
				if term.IsTerminal(int(os.Stdout.Fd())) || c.LogFormat == "console" {
					fmt.Fprint(os.Stdout, greeting(os.Args[0], d.Addr(), c))
				}
			},
		})
	}()
	return func() {
		end()
		<-done
	}
}

func sayReady(log zerolog.Logger, took time.Duration, without []string) {
	if len(without) == 0 {
		log.Info().Dur("took", took).Msg("all services are ready")
		return
	}
	log.Warn().Dur("took", took).Str("without", strings.Join(without, ", ")).Msg("ready without the services that were given up")
}

// notify tells systemd the state of the daemon, if it wants to know.
func notify(state string) error {
	_, err := sd.SdNotify(false, state)
	return err
}

func tellSystemd(state string, log zerolog.Logger) {
	if err := notify(state); err != nil {
		log.Warn().Err(err).Msg("telling systemd")
	}
}

// watchdog returns within which time systemd wants signs of life.
func watchdog(log zerolog.Logger) time.Duration {
	within, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn().Err(err).Msg("systemd's watchdog is not fed")
	}
	return within
}
