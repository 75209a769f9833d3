package fakemps

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// daemon is the fake control daemon.
type daemon struct {
	pipe string
	logs io.Writer

	mu struct {
		sync.Mutex
		percentage string
		server     *server
		clients    []client
		nextID     int
	}
}

// server is the daemon's child. There is one at most, of one user.
type server struct {
	pid    int
	status string
	leash  io.Closer // it ends when this is closed
}

type client struct{ pid, id int }

// runDaemon serves until quit.
func runDaemon(pipe string) int {
	if message, ok := told(pipe, "exit"); ok {
		fmt.Fprintln(os.Stderr, message)
		return 1
	}
	if err := os.MkdirAll(pipe, 0o700); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	lock, err := os.OpenFile(filepath.Join(pipe, "control_lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		fmt.Fprintln(os.Stderr, "An instance of this daemon is already running")
		return 1
	}
	d := &daemon{pipe: pipe, logs: openLog("control.log")}
	d.mu.percentage = "100.0"
	if _, ok := told(pipe, "stay"); ok {
		signal.Ignore(syscall.SIGTERM)
	}
	d.await()
	_ = os.Remove(controlSocket(pipe))
	listener, err := net.Listen(network, controlSocket(pipe))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	d.log("Starting control daemon using socket %s", controlSocket(pipe))
	d.log("To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=%s", pipe)
	pidFile := filepath.Join(pipe, Program+".pid")
	_ = os.WriteFile(pidFile, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return 1
		}
		go d.answer(conn)
	}
}

// await waits until the daemon may get ready.
func (d *daemon) await() {
	for {
		file, late := told(d.pipe, "await")
		_, never := told(d.pipe, "never")
		if _, err := os.Stat(file); !never && (!late || err == nil) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func openLog(name string) io.Writer {
	f, err := os.OpenFile(filepath.Join(os.Getenv("CUDA_MPS_LOG_DIRECTORY"), name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return os.Stderr
	}
	return io.MultiWriter(f, os.Stderr)
}

func (d *daemon) log(format string, args ...any) {
	stamp := time.Now().Format("2006-01-02 15:04:05.000")
	fmt.Fprintf(d.logs, "[%s Control %5d] %s\n", stamp, os.Getpid(), fmt.Sprintf(format, args...))
}

// answer takes one command from a connection.
func (d *daemon) answer(conn net.Conn) {
	defer conn.Close()
	buf := make([]byte, packet)
	n, err := conn.Read(buf)
	if err != nil || n == 0 {
		return
	}
	words := strings.Fields(string(buf[:n]))
	if len(words) == 0 {
		return
	}
	if command, ok := told(d.pipe, "hang"); ok && command == words[0] {
		select {}
	}
	if command, ok := told(d.pipe, "garbage"); ok && command == words[0] {
		fmt.Fprint(conn, "\x00\xffgarbage 12 -7\n")
		return
	}
	if command, ok := told(d.pipe, "huge"); ok && command == words[0] {
		for range 256 {
			if _, err := fmt.Fprint(conn, strings.Repeat("1 ", packet/2)); err != nil {
				return
			}
		}
		return
	}
	if words[0] == "connect" {
		d.connect(conn, words[1:])
		return
	}
	if text := d.obey(words); text != "" {
		fmt.Fprintln(conn, text)
	}
}

// obey does one command and returns what the console prints.
func (d *daemon) obey(words []string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch words[0] {
	case "get_server_list":
		if d.mu.server == nil {
			return ""
		}
		return strconv.Itoa(d.mu.server.pid)
	case "get_default_active_thread_percentage":
		return d.mu.percentage
	case "set_default_active_thread_percentage":
		d.mu.percentage = arg(1) + ".0"
		return d.mu.percentage
	case "start_server":
		return d.startServerLocked()
	case "quit":
		d.quitLocked()
		return ""
	case "ps":
		return d.psLocked()
	}
	if d.mu.server == nil || arg(1) != strconv.Itoa(d.mu.server.pid) {
		return "Server not found"
	}
	switch words[0] {
	case "get_server_status":
		return d.mu.server.status
	case "shutdown_server":
		if arg(2) == "-f" || len(d.mu.clients) == 0 {
			d.mu.server.leash.Close()
		}
		return ""
	case "get_client_list":
		var pids []string
		for _, c := range d.mu.clients {
			pids = append(pids, strconv.Itoa(c.pid))
		}
		return strings.Join(pids, "\n")
	case "terminate_client":
		if slices.ContainsFunc(d.mu.clients, func(c client) bool { return strconv.Itoa(c.pid) == arg(2) }) {
			return "0"
		}
		return "Client not found"
	case "fault": // of the fake only
		d.setStatusLocked("FAULT")
		return ""
	case "recover": // of the fake only
		d.setStatusLocked("ACTIVE")
		return ""
	}
	return "Unknown command: " + words[0]
}

func (d *daemon) setStatusLocked(status string) {
	d.mu.server.status = status
	d.log("Server %d is %s", d.mu.server.pid, status)
}

// hostNamespace is how Linux numbers the host's namespace of processes.
const hostNamespace = 4026531836

func (d *daemon) psLocked() string {
	if d.mu.server == nil || len(d.mu.clients) == 0 {
		return ""
	}
	lines := []string{fmt.Sprintf("%-8s %-6s %-8s %-22s %-12s %s", "PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND")}
	device := os.Getenv("CUDA_VISIBLE_DEVICES")
	for _, c := range d.mu.clients {
		lines = append(lines, fmt.Sprintf("%-8d %-6d %-8d %-22.22s %-12d %s", c.pid, c.id, d.mu.server.pid, device, hostNamespace, "./client"))
	}
	return strings.Join(lines, "\n")
}

func (d *daemon) quitLocked() {
	if _, ok := told(d.pipe, "stay"); ok {
		return
	}
	if d.mu.server != nil {
		d.mu.server.leash.Close()
	}
	d.log("Exiting")
	_ = os.Remove(controlSocket(d.pipe))
	os.Exit(0)
}

// connect gives a client its server and keeps it as long as it is connected.
func (d *daemon) connect(conn net.Conn, words []string) {
	if len(words) != 1 {
		return
	}
	pid, err := strconv.Atoi(words[0])
	if err != nil {
		return
	}
	d.mu.Lock()
	d.startServerLocked()
	s := d.mu.server
	if s == nil || s.status != "ACTIVE" {
		d.mu.Unlock()
		fmt.Fprint(conn, "not ready")
		return
	}
	d.mu.nextID++
	one := client{pid: pid, id: d.mu.nextID}
	d.mu.clients = append(d.mu.clients, one)
	d.log("NEW CLIENT %d from user %d", pid, os.Getuid())
	d.mu.Unlock()
	fmt.Fprint(conn, s.pid)
	_, _ = conn.Read(make([]byte, 1)) // until it goes
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.clients = slices.DeleteFunc(d.mu.clients, func(c client) bool { return c == one })
	if d.mu.server == s && s.status == "FAULT" && len(d.mu.clients) == 0 {
		d.setStatusLocked("ACTIVE")
	}
}
