package gpucheck

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// clientPatience is how long a client may take to do one thing. The first one of
// a server waits for it.
const clientPatience = 15 * time.Second

// running is a client in a process of its own.
type running struct {
	clientReport // of itself
	cmd          *exec.Cmd
	in           io.WriteCloser
	answers      chan clientReport // closed with its output
	patience     time.Duration
	said         *strings.Builder // on standard error, to be read after Wait
}

// patient returns how long to wait for a client, or for MPS.
func (c *check) patient() time.Duration { return cmp.Or(c.patience, clientPatience) }

// startClient starts a process that uses the GPU in an environment, and waits
// until it tells of itself.
func (c *check) startClient(ctx context.Context, env []string) (*running, error) {
	r := &running{patience: c.patient(), cmd: c.command(ctx, "gpu-check", "client"), answers: make(chan clientReport), said: &strings.Builder{}}
	r.cmd.Env, r.cmd.Stderr = env, r.said
	in, err := r.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.in = in
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	go r.read(out)
	if r.clientReport, err = r.answer(ctx); err == nil && r.Error != "" {
		err = fmt.Errorf("%w: %s", ErrWorker, r.Error)
	}
	if err != nil {
		r.stop()
		return r, err
	}
	return r, nil
}

// read passes on what the client answers.
func (r *running) read(out io.Reader) {
	defer close(r.answers)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var a clientReport
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			a.Error = fmt.Sprintf("it printed %q", lines.Text())
		}
		r.answers <- a
	}
}

// answer waits for the next one.
func (r *running) answer(ctx context.Context) (clientReport, error) {
	late := time.NewTimer(r.patience)
	defer late.Stop()
	select {
	case a, ok := <-r.answers:
		if !ok {
			return a, fmt.Errorf("%w: a client ended by itself", ErrWorker)
		}
		return a, nil
	case <-late.C:
		return clientReport{}, fmt.Errorf("%w: a client did not answer within %v", ErrWorker, r.patience)
	case <-ctx.Done():
		return clientReport{}, ctx.Err()
	}
}

// ask has the client do something. The error is the client's own, too.
func (r *running) ask(ctx context.Context, what string) (clientReport, error) {
	if _, err := fmt.Fprintln(r.in, what); err != nil {
		return clientReport{}, fmt.Errorf("%w: a client is gone: %w", ErrWorker, err)
	}
	a, err := r.answer(ctx)
	if err == nil && a.Error != "" {
		err = fmt.Errorf("%w: %s", ErrWorker, a.Error)
	}
	return a, err
}

// stop ends the client: by itself, else by force.
func (r *running) stop() {
	_ = r.in.Close()
	late := time.AfterFunc(daemonGrace, func() { _ = r.cmd.Process.Kill() })
	defer late.Stop()
	for range r.answers {
	}
	_ = r.cmd.Wait() // how it ends is no matter
}
