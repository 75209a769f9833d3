package fakemps

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// serverName is the name of a server's program, from which the kernel derives its comm.
const serverName = "nvidia-cuda-mps-server"

// daemon is the fake control daemon.
type daemon struct {
	pipe string
	logs io.Writer

	mu struct {
		sync.Mutex
		server *server

		// clients are the PIDs of the clients.
		clients []string
	}
}

// server is the daemon's child. There is at most one, for one user.
type server struct {
	pid    string
	status string

	// leash ends the server when it is closed.
	leash io.Closer
}

// runDaemon serves the control socket until the process ends.
func runDaemon(pipe string) error {
	if message, ok := told(pipe, "exit"); ok {
		return errors.New(message)
	}
	if err := os.MkdirAll(pipe, 0o700); err != nil {
		return err
	}
	d := &daemon{pipe: pipe, logs: os.Stderr}
	if f, err := os.OpenFile(filepath.Join(os.Getenv("CUDA_MPS_LOG_DIRECTORY"), "control.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err == nil {
		d.logs = io.MultiWriter(f, os.Stderr)
	}
	d.await()
	_ = os.Remove(controlSocket(pipe))
	listener, err := net.Listen(network, controlSocket(pipe))
	if err != nil {
		return err
	}
	d.log("Starting control daemon using socket %s", controlSocket(pipe))
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go d.answer(conn)
	}
}

// await waits until the test allows the daemon to become ready.
func (d *daemon) await() {
	for {
		if _, never := told(d.pipe, "never"); !never {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (d *daemon) log(format string, args ...any) {
	stamp := time.Now().Format("2006-01-02 15:04:05.000")
	fmt.Fprintf(d.logs, "[%s Control %5d] %s\n", stamp, os.Getpid(), fmt.Sprintf(format, args...))
}

// answer executes one command, or misbehaves as Behave asked.
func (d *daemon) answer(conn net.Conn) {
	defer conn.Close()
	buf := make([]byte, packet)
	n, _ := conn.Read(buf)
	words := strings.Fields(string(buf[:n]))
	if len(words) == 0 {
		return
	}
	misdoes := func(verb string) bool {
		command, ok := told(d.pipe, verb)
		return ok && command == words[0]
	}
	switch {
	case misdoes("hang"):
		select {}
	case misdoes("garbage"):
		fmt.Fprint(conn, "\x00\xffgarbage 12 -7\n")
	case misdoes("huge"):
		for err := error(nil); err == nil; {
			_, err = fmt.Fprint(conn, strings.Repeat("1 ", packet/2))
		}
	case words[0] == "connect" && len(words) == 2:
		d.connect(conn, words[1])
	default:
		if text := d.obey(words); text != "" {
			fmt.Fprintln(conn, text)
		}
	}
}

func (d *daemon) obey(words []string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	args := append(words[1:], "", "")
	switch words[0] {
	case "get_server_list":
		if d.mu.server == nil {
			return ""
		}
		return d.mu.server.pid
	case "start_server":
		if err := d.startServerLocked(); err != nil {
			return err.Error()
		}
		return ""
	case "quit":
		if _, ok := told(d.pipe, "stay"); ok {
			return ""
		}
		if d.mu.server != nil {
			d.mu.server.leash.Close()
		}
		d.log("Exiting")
		_ = os.Remove(controlSocket(d.pipe))
		os.Exit(0)
	}
	if d.mu.server == nil || args[0] != d.mu.server.pid {
		return "Server " + args[0] + " not found"
	}
	switch words[0] {
	case "get_server_status":
		return d.mu.server.status
	case "shutdown_server":
		if args[1] == "-f" || len(d.mu.clients) == 0 {
			d.mu.server.leash.Close()
		}
		return ""
	case "get_client_list":
		return strings.Join(d.mu.clients, "\n")
	case "terminate_client":
		if slices.Contains(d.mu.clients, args[1]) {
			d.log("Terminating client %s", args[1])
			return "0"
		}
		return "Client not found"
	case "fault": // not a command of the real daemon
		d.mu.server.status = "FAULT"
		return ""
	}
	return "Unknown command: " + words[0]
}

// startServerLocked starts a server in a session of its own, so that a test notices one that
// is left behind. The server is a shell that waits for the end of its input. An orphan holds
// that input open itself.
func (d *daemon) startServerLocked() error {
	if d.mu.server != nil {
		return nil
	}
	path := filepath.Join(d.pipe, serverName)
	if err := os.Symlink("/bin/sh", path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	leash, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	defer leash.Close()
	cmd := exec.Command(path, "-c", "read never")
	cmd.Stdin = leash
	if _, ok := told(d.pipe, "orphan"); ok {
		cmd.ExtraFiles = []*os.File{hold}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, hold.Close())
	}
	s := &server{pid: strconv.Itoa(cmd.Process.Pid), status: "ACTIVE", leash: hold}
	if _, ok := told(d.pipe, "slow"); ok {
		s.status = "INITIALIZING"
	}
	d.mu.server = s
	d.log("Starting new server %s for user %d", s.pid, os.Getuid())
	go func() {
		err := cmd.Wait()
		d.mu.Lock()
		defer d.mu.Unlock()
		hold.Close()
		d.mu.server, d.mu.clients = nil, nil
		d.log("Server %s exited with status %v", s.pid, err)
	}()
	return nil
}

// connect assigns a client to the server, until the client disconnects.
func (d *daemon) connect(conn net.Conn, pid string) {
	d.mu.Lock()
	err := d.startServerLocked()
	s := d.mu.server
	if err != nil || s.status != "ACTIVE" {
		d.mu.Unlock()
		fmt.Fprint(conn, "not ready")
		return
	}
	d.mu.clients = append(d.mu.clients, pid)
	d.log("NEW CLIENT %s from user %d", pid, os.Getuid())
	d.mu.Unlock()
	fmt.Fprint(conn, s.pid)
	_, _ = conn.Read(make([]byte, 1)) // until it disconnects
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.server != s {
		return
	}
	i := slices.Index(d.mu.clients, pid)
	d.mu.clients = slices.Delete(d.mu.clients, i, i+1)
	if s.status == "FAULT" && len(d.mu.clients) == 0 {
		s.status = "ACTIVE"
	}
}
