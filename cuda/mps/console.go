package mps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// outputMax limits the output of one command.
	outputMax = 64 << 10

	// pipeGrace is how long to wait for output after the program has exited.
	pipeGrace = 100 * time.Millisecond

	// Bounds of the growing delay before a refused command is repeated.
	refusedDelayMin = 5 * time.Millisecond
	refusedDelayMax = 250 * time.Millisecond
)

// console sends commands to the control daemon of one pipe directory, one at a time. All
// methods are safe for concurrent use. Each is bounded by its context and by the command
// timeout.
type console struct {
	program string
	pipe    string
	timeout time.Duration

	// turn holds a token while no command runs. Unlike a mutex, waiting for it can be
	// cancelled.
	turn chan struct{}
}

func newConsole(program, pipe string, timeout time.Duration) *console {
	c := &console{program: program, pipe: pipe, timeout: timeout, turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c
}

// Servers returns the PIDs of the servers. There is usually one or none.
func (c *console) Servers(ctx context.Context) ([]int, error) {
	pids, err := c.pids(ctx, "get_server_list")
	if errors.Is(err, ErrNoServer) {
		return nil, nil
	}
	return pids, err
}

// ClientPIDs returns the PIDs of a server's clients.
func (c *console) ClientPIDs(ctx context.Context, server int) ([]int, error) {
	return c.pids(ctx, "get_client_list "+strconv.Itoa(server))
}

func (c *console) pids(ctx context.Context, command string) ([]int, error) {
	text, err := c.send(ctx, command)
	if err != nil {
		return nil, err
	}
	return parsePIDs(command, text)
}

// Status returns the state that a server reports.
func (c *console) Status(ctx context.Context, server int) (string, error) {
	command := "get_server_status " + strconv.Itoa(server)
	text, err := c.send(ctx, command)
	if err != nil {
		return "", err
	}
	return parseStatus(command, text)
}

// TerminateClient ends a client's work on the device. The client's process continues, and
// its next CUDA call fails.
func (c *console) TerminateClient(ctx context.Context, server, client int) error {
	command := fmt.Sprintf("terminate_client %d %d", server, client)
	text, err := c.send(ctx, command)
	if err == nil && strings.TrimSpace(text) != "0" {
		err = unknown(command, text)
	}
	return err
}

// Quit ends the control daemon and its servers, once no clients are connected.
func (c *console) Quit(ctx context.Context) error {
	_, err := c.send(ctx, "quit")
	return err
}

// send runs the control program with one command on its standard input, and returns its
// output. It returns ErrNoServer if the program reports that there is no such server. A control
// daemon that serves another program's command refuses ours (seen with driver 580, on an H100
// whose daemon ten overlapds shared), so send repeats a refused command.
func (c *console) send(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	select {
	case <-c.turn:
		defer func() { c.turn <- struct{}{} }()
	case <-ctx.Done():
		return "", c.unanswered(ctx, command)
	}
	for delay := refusedDelayMin; ; delay = min(2*delay, refusedDelayMax) {
		text, refusal, err := c.sendOnce(ctx, command)
		if !refusal {
			return text, err
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return "", c.unanswered(ctx, command)
		}
	}
}

// sendOnce runs the program once. refusal reports whether the control daemon did not take the command.
func (c *console) sendOnce(ctx context.Context, command string) (_ string, refusal bool, _ error) {
	var out output
	cmd := exec.CommandContext(ctx, c.program)
	cmd.Env = environment(pipeVariable + "=" + c.pipe)
	cmd.Stdin = strings.NewReader(command + "\n")
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = pipeGrace
	// Pdeathsig kills the program when the thread that started it ends.
	runtime.LockOSThread()
	err := cmd.Run()
	runtime.UnlockOSThread()
	text := out.data.String()
	switch {
	case out.full:
		return "", false, fmt.Errorf("%w: %s printed more than %d bytes, beginning with %q", ErrOutput, command, outputMax, text[:quoteMax])
	case strings.Contains(text, noDaemon):
		return "", false, fmt.Errorf("%w in %s: start one there, or set mps mode = \"own\"", ErrNoDaemon, c.pipe)
	case ctx.Err() != nil:
		return "", false, c.unanswered(ctx, command)
	case strings.Contains(text, refused):
		return "", true, nil
	case errors.Is(err, exec.ErrWaitDelay): // it succeeded, and a descendant still holds the pipe
	case err != nil:
		return "", false, fmt.Errorf("%w: %s: %w; it printed %q", ErrCommand, command, err, text[:min(len(text), quoteMax)])
	}
	if missing(text) {
		return "", false, ErrNoServer
	}
	return text, false, nil
}

func (c *console) unanswered(ctx context.Context, command string) error {
	if ctx.Err() == context.Canceled {
		return fmt.Errorf("mps: %s: %w", command, ctx.Err())
	}
	return fmt.Errorf("%w: %s in %s took longer than %v: the daemon or the GPU hangs; stop the workers, then restart the daemon",
		ErrNoAnswer, command, c.pipe, c.timeout)
}

// output keeps the output of a command. Writes beyond outputMax fail.
type output struct {
	data bytes.Buffer
	full bool
}

func (o *output) Write(p []byte) (int, error) {
	if o.data.Len()+len(p) > outputMax {
		o.full = true
		o.data.Write(p[:outputMax-o.data.Len()])
		return 0, ErrOutput
	}
	return o.data.Write(p)
}

// The states of a server. A starting server accepts no clients yet. A server is in FAULT
// after a client's kernel failed; it accepts no new client until all its clients have
// exited.
const (
	StatusStarting = "INITIALIZING"
	StatusActive   = "ACTIVE"
	StatusFault    = "FAULT"
)

const (
	// pidMax is the highest PID that Linux uses.
	pidMax = 1 << 22

	// quoteMax limits how many bytes of an output an error quotes.
	quoteMax = 200
	noDaemon = "Cannot find MPS control daemon process"
	refused  = "Cannot send command to MPS control daemon process"
)

func unknown(command, text string) error {
	return fmt.Errorf("%w: %s printed %q (%d bytes in all): this driver's MPS may be newer than overlapd, or something else runs under its name",
		ErrOutput, command, text[:min(len(text), quoteMax)], len(text))
}

// noServer matches what drivers print: 580 names the server, others do not.
var noServer = regexp.MustCompile(`(?i)^\s*server (\d+ )?not found\.?\s*$`)

// missing reports whether the output says that there is no such server.
func missing(text string) bool {
	return noServer.MatchString(text)
}

func parsePIDs(command, text string) ([]int, error) {
	var pids []int
	for _, field := range strings.Fields(text) {
		pid, err := parsePID(field)
		if err != nil {
			return nil, unknown(command, text)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

func parsePID(field string) (int, error) {
	pid, err := strconv.ParseUint(field, 10, 31)
	if err == nil && (pid == 0 || pid > pidMax) {
		err = strconv.ErrRange
	}
	return int(pid), err
}

func parseStatus(command, text string) (string, error) {
	switch s := strings.TrimSpace(text); s {
	case StatusStarting, StatusActive, StatusFault:
		return s, nil
	}
	return "", unknown(command, text)
}
