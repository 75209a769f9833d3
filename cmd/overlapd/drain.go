package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/report"
)

const (
	drainGrace = 5 * time.Second        // for balancers to learn of it, by default
	drainLimit = time.Minute            // on waiting, by default
	drainQuiet = time.Second            // without a query, after which none is expected
	drainLook  = 100 * time.Millisecond // how often the daemon is asked
)

func drainCommand() *cobra.Command {
	var at socketOptions
	var o drainOptions
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Have balancers leave a daemon that is to be stopped",
		Long: `Drain has a running daemon say that it is not ready, over HTTP and gRPC, and go on
answering queries, since balancers learn of it late. With --wait it returns when
balancers had their time, nothing is open and no query has come for a second: then
the daemon can be stopped without losing one. It is for the preStop hook of a pod,
whose terminationGracePeriodSeconds are more than --limit and drain_timeout.

Exit status: 0, nothing is open, or without --wait the daemon is not ready any more;
1, at the limit queries were open or came still, or there was nobody to ask.`,
		Example: `  overlapd drain --wait
  overlapd drain --wait --grace 15s --limit 2m --config /etc/overlapd/0.toml
  overlapd drain --cancel                the daemon is ready again`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := at.client()
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			said, err := o.drain(ctx, func(do string) (map[string]int64, uint64, error) { return c.Drain(ctx, do) })
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
			}
			return err
		},
	}
	at.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.wait, "wait", false, "return when nothing is open any more")
	f.DurationVar(&o.grace, "grace", drainGrace, "wait at least so long, for balancers to learn of it")
	f.DurationVar(&o.limit, "limit", drainLimit, "wait at most so long")
	f.BoolVar(&o.cancel, "cancel", false, "take it back")
	cmd.MarkFlagsMutuallyExclusive("wait", "cancel")
	return cmd
}

type drainOptions struct {
	wait, cancel bool
	grace, limit time.Duration
}

// drain does what the options say, and returns what to tell.
func (o *drainOptions) drain(ctx context.Context, ask func(do string) (open map[string]int64, ended uint64, err error)) (said string, err error) {
	if least := o.grace + drainQuiet; o.grace < 0 || o.wait && o.limit <= least {
		return "", fmt.Errorf("--grace must not be negative, and --limit be more than it and the %v without a query that end the wait: %v", drainQuiet, least)
	}
	if o.cancel {
		_, _, err = ask(admin.DrainCancel)
		return "the daemon is ready again, if its services are", err
	}
	open, ended, err := ask(admin.DrainBegin)
	if err != nil || !o.wait {
		return "the daemon says that it is not ready; it answers queries until it is stopped", err
	}
	begun := time.Now()
	quiet := begun
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	for last := ended; ; {
		if len(open) > 0 || ended != last {
			quiet, last = time.Now(), ended
		}
		switch {
		case time.Since(begun) >= o.grace && time.Since(quiet) >= drainQuiet:
			return fmt.Sprintf("nothing is open after %v; stop the daemon, or take it back with overlapd drain --cancel", time.Since(begun).Round(drainLook)), nil
		case time.Since(begun) >= o.limit:
			return "", o.late(open)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", errors.New("you left; the daemon still says that it is not ready, and overlapd drain --cancel takes that back")
		}
		if open, ended, err = ask(admin.DrainShow); err != nil {
			return "", err
		}
	}
}

// late says what keeps the daemon from being stopped.
func (o *drainOptions) late(open map[string]int64) error {
	if len(open) == 0 {
		return fmt.Errorf("queries still come after %v: whoever sends them does not look at readiness; have it do so, or raise --grace and --limit", o.limit)
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(open)) {
		list = append(list, name+": "+report.Count(open[name], "query", "queries"))
	}
	return fmt.Errorf("not all is answered after %v: %s; raise --limit, or see overlapd status for what is slow", o.limit, strings.Join(list, ", "))
}
