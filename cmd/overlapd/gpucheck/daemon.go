package gpucheck

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// daemonGrace is how long a process may take to end when told to.
	daemonGrace = 5 * time.Second

	// maxLine is the longest line of a daemon's log that is read.
	maxLine = 1 << 16

	// tailLines is how many of the last lines go into an error.
	tailLines = 5
)

// leastTarget is the least QoS target: below it, passing requests on matters more
// than running them.
const leastTarget = 5 * time.Millisecond

// target returns the QoS target of a service: the time alone, so many times, and
// no less than all services need one after another.
func (c *check) target(model string) time.Duration {
	sum := 0.0
	for _, s := range c.Services {
		sum += c.alone(s.Name, 1)
	}
	ms := math.Ceil(max(c.Targets*c.alone(model, 1), sum))
	return max(time.Duration(ms)*time.Millisecond, leastTarget)
}

// writeConfig writes the configuration of a daemon that keeps its state in dir,
// and returns its path.
func (c *check) writeConfig(dir string) (string, error) {
	device, tables, err := c.placeDaemon()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(device)
	fmt.Fprintf(&b, "listen = \"127.0.0.1:0\"\ngrpc_listen = \"\"\nstate_dir = %q\nlog_format = \"json\"\n", dir)
	b.WriteString(tables)
	fmt.Fprintf(&b, "\n[worker]\nthreads = %d\n", c.Threads)
	fmt.Fprintf(&b, "\n[profile]\non_start = false\ngroups = %d\nspans = %d\nseed = %d\n", c.Groups, services, c.Seed)
	for _, s := range c.Services {
		fmt.Fprintf(&b, "\n[[service]]\nname = %q\nmodel = %q\ntarget = %q\ncut = %d\nsizes = [1]\nseq_lens = [%d]\n",
			s.Name, s.Path, c.target(s.Name), c.cut(s.Name), c.SeqLen)
	}
	path := filepath.Join(dir, "overlapd.toml")
	return path, os.WriteFile(path, []byte(b.String()), 0o644)
}

// command returns a command of overlapd that ends with ctx.
func (c *check) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Command[0], append(c.Command[1:len(c.Command):len(c.Command)], args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = daemonGrace
	return cmd
}

// ask runs a command of overlapd that prints one JSON object.
func (c *check) ask(ctx context.Context, answer any, args ...string) error {
	var out, failure bytes.Buffer
	cmd := c.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: overlapd %s: %w: %s", ErrDaemon, args[0], err, lastLines(failure.String()))
	}
	if err := json.Unmarshal(out.Bytes(), answer); err != nil {
		return fmt.Errorf("%w: overlapd %s printed no result: %w", ErrDaemon, args[0], err)
	}
	return nil
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], " | ")
}

// daemon is a process that serves.
type daemon struct {
	cmd  *exec.Cmd
	url  string
	read chan struct{} // is closed when its log is read to the end
}

// logLine is what is read of a line of a daemon's log.
type logLine struct {
	Level   string `json:"level"`
	Address string `json:"address"`
	Message string `json:"message"`
	Error   string `json:"error"`
}

// serve starts a daemon with a policy and waits until all services are ready.
func (c *check) serve(ctx context.Context, config, policy string) (*daemon, error) {
	d := &daemon{cmd: c.command(context.Background(), "serve", "--config", config, "--policy", policy), read: make(chan struct{})}
	// It gets a group of its own: an interrupt is for us, and we end it.
	log, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan error, 1)
	go func() {
		defer close(d.read)
		ready <- d.follow(log)
		_, _ = io.Copy(io.Discard, log)
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// follow reads the log until the daemon is ready.
func (d *daemon) follow(log io.Reader) error {
	var said []string
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var l logLine
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			said = append(said, lines.Text())
			continue
		}
		if l.Address != "" {
			d.url = "http://" + l.Address
		}
		if l.Level == "error" || l.Level == "warn" {
			said = append(said, l.Message+": "+l.Error)
		}
		if d.url != "" && l.Message == "all services are ready" {
			return nil
		}
	}
	return fmt.Errorf("%w: it ended before it was ready: %s", ErrDaemon, lastLines(strings.Join(said, "\n")))
}

// stop ends the daemon and waits for it.
func (d *daemon) stop() error {
	_ = d.cmd.Process.Signal(unix.SIGTERM) // it may be gone already
	late := time.AfterFunc(daemonGrace, func() { _ = d.cmd.Process.Kill() })
	defer late.Stop()
	<-d.read
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %w", ErrDaemon, err)
	}
	return nil
}
