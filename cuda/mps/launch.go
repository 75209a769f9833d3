package mps

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/overlapd/overlapd/executor/child"
)

// launch starts a daemon of ours and waits until it answers.
func (c *Control) launch(ctx context.Context) (*child.Process, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(c.ctx, stop)()
	sweeping, done := context.WithTimeout(ctx, c.opts.StopTimeout)
	defer done()
	if err := errors.Join(sweep(sweeping, c.console, c.dir), c.dir.clear(), c.dir.rotate()); err != nil {
		return nil, err
	}
	env := environment(append(c.dir.variables(), "CUDA_VISIBLE_DEVICES="+c.opts.Device)...)
	cmd := exec.Command(c.program, "-f")
	cmd.Env = env
	p, err := child.Start(cmd, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	if err := c.awaitReady(ctx, p); err != nil {
		c.kill(p)
		return nil, fmt.Errorf("%w: %w%s", ErrNotReady, err, c.lastWords(p))
	}
	return p, nil
}

// Waiting for the first answer.
const (
	readyTries    = 200
	readyDelayMin = 5 * time.Millisecond
	readyDelayMax = 250 * time.Millisecond
)

// awaitReady asks until the daemon answers, ends, or has taken too long.
func (c *Control) awaitReady(ctx context.Context, p *child.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.opts.ReadyTimeout, fmt.Errorf("it did not answer within %v", c.opts.ReadyTimeout))
	defer cancel()
	delay := readyDelayMin
	var last error
	for range readyTries {
		if _, last = c.console.Servers(ctx); last == nil {
			return nil
		}
		if errors.Is(last, ErrOutput) {
			return last
		}
		timer := time.NewTimer(delay)
		select {
		case <-p.Done():
			timer.Stop()
			return fmt.Errorf("it ended at once (%s)", p.Status())
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(context.Cause(ctx), unless(last, ErrNoDaemon))
		case <-timer.C:
		}
		delay = min(2*delay, readyDelayMax)
	}
	return fmt.Errorf("it did not answer %d times: %w", readyTries, last)
}

// unless returns err, or nil if it is of a kind.
func unless(err, kind error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}

// errorLines is how many lines of what the daemon said an error quotes.
const errorLines = 6

// kill ends a daemon at once, with all that serves its directory.
func (c *Control) kill(p *child.Process) error {
	p.Kill()
	<-p.Done()
	return c.killRest()
}

// killRest ends servers whose daemon is gone. It also works during Stop.
func (c *Control) killRest() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.StopTimeout)
	defer cancel()
	return killLeftovers(ctx, c.dir)
}

// lastWords quotes what a daemon printed last, else what it logged.
func (c *Control) lastWords(p *child.Process) string {
	if lines := child.Excerpt(p.Tail(), errorLines); lines != "" {
		return "; it printed: " + lines
	}
	if lines := child.Excerpt(c.dir.tail("control.log"), errorLines); lines != "" {
		return "; control.log ends: " + lines
	}
	return "; it printed nothing; try it by hand: CUDA_MPS_PIPE_DIRECTORY=" + c.pipe + " " + c.program + " -f"
}
