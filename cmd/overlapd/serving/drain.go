package serving

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
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
)

const (
	// drainGrace is what balancers have by default to learn of it, which most do every few seconds.
	drainGrace = 5 * time.Second
	// drainLimit bounds the wait by default.
	drainLimit = time.Minute
	// drainQuiet is how long no query may arrive until none is expected.
	drainQuiet = time.Second
	// drainLook is how often the daemon is asked.
	drainLook = 100 * time.Millisecond
)

// drainCommand is for preStop hooks: it may take as long as it needs, since a pod is stopped only when
// it returns.
func drainCommand() *cobra.Command {
	var at socketOptions
	var o drainOptions
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Take a daemon out of load balancing before it is stopped",
		Long: `Drain makes a running daemon report over HTTP and gRPC that it is not ready, so that
load balancers stop sending to it. It keeps answering queries, because balancers
notice late. Use it in the preStop hook of a pod, with terminationGracePeriodSeconds
above --limit plus drain_timeout.

With --wait it returns after --grace, once no query is open and none has arrived for a
second. Then the daemon can be stopped without losing a query.

Exit status: 0, no query is open, or without --wait the daemon reports not ready;
1, at --limit queries were still open or arriving, or no daemon answered.`,
		Example: `  overlapd drain --wait
  overlapd drain --wait --grace 15s --limit 2m --config /etc/overlapd/0.toml
  overlapd drain --cancel                make the daemon ready again`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := at.client()
			if err != nil {
				return err
			}
			ctx, stop := cli.Interruptible(cmd)
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
	f.BoolVar(&o.wait, "wait", false, "return when no query is open")
	f.DurationVar(&o.grace, "grace", drainGrace, "wait at least this long, for balancers to notice")
	f.DurationVar(&o.limit, "limit", drainLimit, "wait at most this long")
	f.BoolVar(&o.cancel, "cancel", false, "make the daemon ready again")
	cmd.MarkFlagsMutuallyExclusive("wait", "cancel")
	return cmd
}

// drainOptions are the flags of drain.
type drainOptions struct {
	wait, cancel bool
	grace, limit time.Duration
}

// drain does what the options say, and returns what to tell. The daemon is asked by a function, so that
// tests answer in its place.
func (o *drainOptions) drain(ctx context.Context, ask func(do string) (open map[string]int64, ended uint64, err error)) (said string, err error) {
	// A limit within the grace would fail each time, however quiet the daemon is.
	if least := o.grace + drainQuiet; o.grace < 0 || o.wait && o.limit <= least {
		return "", fmt.Errorf("--grace must not be negative, and --limit must exceed it by more than %v, the time without a query that ends the wait: %v", drainQuiet, least)
	}
	// Whether the daemon is ready again depends on its services too, which nobody waits for here.
	if o.cancel {
		_, _, err = ask(admin.DrainCancel)
		return "the daemon is ready again, as far as its services are", err
	}
	open, ended, err := ask(admin.DrainBegin)
	if err != nil || !o.wait {
		return "the daemon reports not ready; it answers queries until it is stopped", err
	}
	begun := time.Now()
	quiet := begun
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	for last := ended; ; {
		// A query that came and went between two looks shows only in how many have ended.
		if len(open) > 0 || ended != last {
			quiet, last = time.Now(), ended
		}
		switch {
		case time.Since(begun) >= o.grace && time.Since(quiet) >= drainQuiet:
			return fmt.Sprintf("no query is open after %v; stop the daemon, or cancel with: overlapd drain --cancel", time.Since(begun).Round(drainLook)), nil
		case time.Since(begun) >= o.limit:
			return "", o.late(open)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			// Draining goes on, because what interrupts a preStop hook is the end of the pod.
			return "", errors.New("drain stopped waiting; the daemon still reports not ready; cancel with: overlapd drain --cancel")
		}
		if open, ended, err = ask(admin.DrainShow); err != nil {
			return "", err
		}
	}
}

// late says what keeps the daemon from being stopped: queries that arrive, or queries that take long.
// The remedies differ, and so do those who must act.
func (o *drainOptions) late(open map[string]int64) error {
	if len(open) == 0 {
		return fmt.Errorf("queries still arrive after %v: their sender ignores readiness; make it check readiness, or raise --grace and --limit", o.limit)
	}
	// The services are named, since one with slow answers is the usual reason.
	var list []string
	for _, name := range slices.Sorted(maps.Keys(open)) {
		list = append(list, name+": "+report.Count(open[name], "query", "queries"))
	}
	return fmt.Errorf("queries are still open after %v: %s; raise --limit, or see what is slow with: overlapd status", o.limit, strings.Join(list, ", "))
}
