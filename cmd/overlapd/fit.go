package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

const (
	// fitNice is the niceness of a process that fits: serving goes first.
	fitNice = 19

	// fitGrace is how long a process that fits may take to end when told to.
	fitGrace = 2 * time.Second

	// maxFitMessage is how much of its standard error goes into the error.
	maxFitMessage = 4 << 10
)

// fitOrder is what a process that fits reads.
type fitOrder struct {
	Dataset   *training.Dataset
	Operators map[string][]training.OperatorTimes
}

// fitCommand is what the daemon starts to fit a predictor: the order comes on
// standard input, the predictor goes to standard output. It ends when standard
// input does, so that it does not outlive the daemon.
func fitCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "fit",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := unix.Setpriority(unix.PRIO_PROCESS, 0, fitNice); err != nil {
				return err
			}
			return runFit(cmd.Context(), os.Stdin, os.Stdout)
		},
	}
}

func runFit(ctx context.Context, in io.Reader, out io.Writer) error {
	var order fitOrder
	if err := json.NewDecoder(in).Decode(&order); err != nil {
		return fmt.Errorf("reading what was measured: %w", err)
	}
	if order.Dataset == nil {
		return errors.New("there is no dataset")
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in) // until whoever wants the predictor is gone
		stop()
	}()
	o := fit.DefaultOptions()
	o.Operators = order.Operators
	f, _, err := fit.Train(ctx, order.Dataset, o)
	if err != nil {
		return err
	}
	f.Created = time.Now().UTC()
	return json.NewEncoder(out).Encode(f)
}

// fitElsewhere returns a function that fits in a process of its own: what it
// takes of the processors and the memory ends with it.
func fitElsewhere(self string) func(context.Context, *training.Dataset, map[string][]training.OperatorTimes) (*predictor.File, error) {
	return func(ctx context.Context, d *training.Dataset, operators map[string][]training.OperatorTimes) (*predictor.File, error) {
		order, err := json.Marshal(fitOrder{d, operators})
		if err != nil {
			return nil, err
		}
		var out, message bytes.Buffer
		cmd := exec.CommandContext(ctx, self, "fit")
		cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
		cmd.WaitDelay = fitGrace
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C on a terminal is for the daemon
		cmd.Stdout, cmd.Stderr = &out, &message
		in, err := cmd.StdinPipe() // open until the process has ended
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		_, err = in.Write(order)
		if err := errors.Join(cmd.Wait(), err); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			text := message.String()
			return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(text[max(0, len(text)-maxFitMessage):]))
		}
		return predictor.Read(&out)
	}
}
