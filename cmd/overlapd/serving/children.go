package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/statefile"
	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments"
	"github.com/overlapd/overlapd/segments/worker"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

// The daemon starts processes of its own binary for what may crash, hang or take much memory. Their
// commands are hidden: what they read and write is between them and the daemon, and changes with it.

// workerCommand is in the daemon's binary, so that both ends have one protocol.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "Hold one service's model and run its operators (started by the daemon)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			err := worker.Run(segments.LoadONNX)
			if errors.Is(err, worker.ErrLoadFailed) {
				return cli.ErrReported // the daemon has the error and reports it
			}
			return err
		},
	}
}

// checkStateName is the command that checks the state file before it is opened.
const checkStateName = "check-state"

// CheckState returns the command line that checks a state file, for whatever opens one.
func CheckState() []string { return cli.Self(checkStateName) }

// checkStateCommand checks in a process of its own, so that no damage to the state file
// ends the daemon.
func checkStateCommand() *cobra.Command {
	return &cobra.Command{
		Use:    checkStateName,
		Short:  "Check the state file (started by the process that opens it)",
		Hidden: true,
		Args:   cobra.NoArgs,
		Run:    func(*cobra.Command, []string) { statefile.RunCheck() },
	}
}

// fitOrder is the input of a process that fits. It gets all of it at once and opens no file, since the
// daemon has the state file open.
type fitOrder struct {
	Dataset   *training.Dataset
	Operators map[string][]training.OperatorTimes
}

// fitCommand fits a predictor for the daemon that starts it. The order comes on
// standard input, the predictor goes to standard output.
func fitCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "fit",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Serving goes first, however many cores the fit could use.
			const lowest = 19
			if err := unix.Setpriority(unix.PRIO_PROCESS, 0, lowest); err != nil {
				return err
			}
			var order fitOrder
			if err := json.NewDecoder(os.Stdin).Decode(&order); err != nil {
				return fmt.Errorf("reading the measurements failed: %w", err)
			}
			if order.Dataset == nil {
				return errors.New("there is no dataset")
			}
			o := fit.DefaultOptions()
			o.Operators = order.Operators
			f, _, err := fit.Train(cmd.Context(), order.Dataset, o)
			if err != nil {
				return err
			}
			// The daemon keeps the newest predictor, by this time.
			f.Created = time.Now().UTC()
			return json.NewEncoder(os.Stdout).Encode(f)
		},
	}
}

// fitElsewhere fits in a process of its own, with which its memory ends. It is killed if ctx ends, since
// a fit that nobody waits for would keep the daemon from stopping.
func fitElsewhere(ctx context.Context, d *training.Dataset, operators map[string][]training.OperatorTimes) (*predictor.File, error) {
	// Both ends are this binary, so JSON needs no format of its own and no version.
	order, err := json.Marshal(fitOrder{d, operators})
	if err != nil {
		return nil, err
	}
	line := cli.Self("fit")
	var out bytes.Buffer
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdin, cmd.Stdout = bytes.NewReader(order), &out
	// The child package reaps it and keeps the end of its standard error, which is the reason that the
	// daemon logs and shows in its status.
	p, err := child.Start(cmd, nil)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, p.Kill)()
	<-p.Done()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !p.Succeeded():
		return nil, fmt.Errorf("%s: %s", p.Status(), strings.TrimSpace(p.Tail()))
	}
	return predictor.Read(&out)
}
