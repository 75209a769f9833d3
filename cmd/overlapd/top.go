package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
)

const (
	// topEvery is how often the view is drawn anew.
	topEvery = 500 * time.Millisecond

	// keyPoll is how soon a signal is noticed while no key is pressed.
	keyPoll = 100 * time.Millisecond

	// plainWidth is that of the table where there is no terminal.
	plainWidth = 80
)

func topCommand() *cobra.Command {
	var at target
	var which int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch a running daemon in the terminal",
		Long: `Top shows how a daemon is doing, twice a second: each service with its target,
the p50 and p99 of its last 256 queries, the share of them that was late or
without an answer, its queue, and what ran lately: a row for the device and one
for each service, the newest on the right.

Keys: q quits, p holds the picture and lets it go on. Where the terminal is narrow,
columns are left out; NO_COLOR in the environment leaves out colours. Where the
output is no terminal, top prints the view once. The dashboard at / of the daemon
shows more: a click on a group there tells why it was chosen.`,
		Example: `  overlapd top
  overlapd top --url http://127.0.0.1:9000
  overlapd top | head          once, as text
  overlapd top --json          once, for programs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := view{which: which}
			if err := at.open(); err != nil {
				return err
			}
			if err := v.ask(&at); err != nil {
				return err
			}
			in, out := int(os.Stdin.Fd()), int(os.Stdout.Fd())
			switch {
			case asJSON:
				return printJSON(cmd.OutOrStdout(), v.now)
			case term.IsTerminal(in) && term.IsTerminal(out):
				ctx, stop := interruptible(cmd)
				defer stop()
				return watch(ctx, &v, &at, in, out)
			}
			_, err := io.WriteString(cmd.OutOrStdout(), v.render(plainWidth, 0, false))
			return err
		},
	}
	at.flags(cmd.Flags())
	cmd.Flags().IntVar(&which, "instance", 0, "instance of a GPU that is divided, from 0")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object: the status and the latest rounds")
	return cmd
}

// seen is how a daemon stands.
type seen struct {
	Status   answers       `json:"status"`
	Timeline timeline.Page `json:"timeline"`
}

// view is what is known of a daemon, now and a moment ago: rates are the
// difference.
type view struct {
	now, before seen
	which       int // instance
	held        bool
	lost        error // why there is nothing newer
}

// ask asks the daemon how it stands.
func (v *view) ask(t *target) error {
	var s seen
	var err error
	if s.Status, err = askStatus(t); err != nil {
		return err
	}
	if s.Timeline, err = askTimeline(t, v.which, timeline.Latest); err != nil {
		return err
	}
	v.before, v.now = v.now, s
	if !v.before.Timeline.Epoch.Equal(v.now.Timeline.Epoch) { // another daemon
		v.before = v.now
	}
	return nil
}

// Sequences that terminals know.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, no cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	fromTop     = "\x1b[H"
	restOfLine  = "\x1b[K"
	restOfView  = "\x1b[J"
)

// watch draws the view until q is pressed or ctx ends, and leaves the terminal
// as it was.
func watch(ctx context.Context, v *view, t *target, in, out int) error {
	was, err := term.MakeRaw(in)
	if err != nil {
		return fmt.Errorf("the terminal cannot be used: %w; overlapd status prints a table", err)
	}
	defer func() { _ = term.Restore(in, was) }()
	fmt.Print(enterScreen)
	defer fmt.Print(leaveScreen)
	colour := os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	for {
		width, height, err := term.GetSize(out)
		if err != nil {
			return err
		}
		fmt.Print(fromTop + onScreen(v.render(width, height, colour)) + restOfView)
		if quit := v.keys(ctx, in, topEvery); quit {
			return nil
		}
		if !v.held {
			v.lost = v.ask(t)
		}
	}
}

// keys takes keys for some time. It reports whether it is time to quit.
func (v *view) keys(ctx context.Context, in int, lasts time.Duration) (quit bool) {
	var key [16]byte
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		if ctx.Err() != nil {
			return true
		}
		fds := []unix.PollFd{{Fd: int32(in), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, int(keyPoll.Milliseconds())); err != nil || n == 0 {
			continue // nothing, or a signal
		}
		n, err := unix.Read(in, key[:])
		if err != nil || n == 0 {
			return true // the terminal is gone
		}
		for _, k := range key[:n] {
			switch k {
			case 'q', 'Q', 3, 4: // 3 and 4 are Ctrl-C and Ctrl-D
				return true
			case 'p', 'P', ' ':
				v.held = !v.held
				return false
			}
		}
	}
	return false
}
