package mps

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// launch starts a daemon of ours and waits until it answers.
func (c *Control) launch(ctx context.Context) (*process, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(c.ctx, stop)()
	sweeping, done := context.WithTimeout(ctx, c.opts.StopTimeout)
	defer done()
	if err := errors.Join(sweep(sweeping, c.console, c.dir), c.dir.clear(), c.dir.rotate()); err != nil {
		return nil, err
	}
	env := environment(append(c.dir.variables(), "CUDA_VISIBLE_DEVICES="+c.opts.Device)...)
	p, err := startProcess(c.spawn, c.program, env)
	if err != nil {
		return nil, err
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
func (c *Control) awaitReady(ctx context.Context, p *process) error {
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
		case <-p.exited:
			timer.Stop()
			return fmt.Errorf("it ended at once (%v)", p.cmd.ProcessState)
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

// kill ends a daemon at once, with all that serves its directory.
func (c *Control) kill(p *process) error {
	p.signal(killSignal)
	<-p.exited
	return c.killRest()
}

// killRest ends servers whose daemon is gone. It also works during Stop.
func (c *Control) killRest() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.StopTimeout)
	defer cancel()
	return killLeftovers(ctx, c.dir)
}

// lastWords quotes what a daemon printed last, else what it logged.
func (c *Control) lastWords(p *process) string {
	if lines := lastLines(p.tail.text()); lines != "" {
		return "; it printed: " + lines
	}
	if lines := lastLines(c.dir.tail("control.log")); lines != "" {
		return "; control.log ends: " + lines
	}
	return "; it printed nothing; try it by hand: CUDA_MPS_PIPE_DIRECTORY=" + c.pipe + " " + c.program + " -f"
}
