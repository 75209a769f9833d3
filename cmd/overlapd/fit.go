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
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

// fitNice is the niceness of a process that fits: serving goes first.
const fitNice = 19

// fitOrder is what a process that fits reads.
type fitOrder struct {
	Dataset   *training.Dataset
	Operators map[string][]training.OperatorTimes
}

// fitCommand is what the daemon starts to fit a predictor: the order comes on
// standard input, the predictor goes to standard output.
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
		var out bytes.Buffer
		cmd := exec.Command(self, "fit")
		cmd.Stdin, cmd.Stdout = bytes.NewReader(order), &out
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
}
