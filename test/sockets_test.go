package test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// socket is a listening socket that a service manager holds for a daemon.
type socket struct {
	name, address string
	file          *os.File
}

// hold opens a socket that stays open until the test ends. Nobody but daemons accepts.
func hold(t testing.TB, name string) socket {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return socket{name, ln.Addr().String(), f}
}

// passing has a command started with sockets as systemd does it (sd_listen_fds(3)): the
// number of the process, which is in its environment, is known only once it runs.
func passing(sockets []socket, cmd *exec.Cmd) *exec.Cmd {
	var names []string
	for _, s := range sockets {
		names = append(names, s.name)
		cmd.ExtraFiles = append(cmd.ExtraFiles, s.file)
	}
	cmd.Env = append(cmd.Env, fmt.Sprintf("LISTEN_FDS=%d", len(sockets)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	sh := exec.Command("/bin/sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`}, cmd.Args...)...)
	sh.Env, sh.ExtraFiles = cmd.Env, cmd.ExtraFiles
	return sh
}

// inode returns what the socket is in /proc/PID/fd. It does not call Fd, which would make the socket
// blocking for the daemon as well, which could then not stop accepting.
func (s *socket) inode(t testing.TB) (link string) {
	t.Helper()
	raw, err := s.file.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) { link, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)) }), err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// inherited is the configuration of a daemon with sockets that it inherits.
func inherited(dir string, http, grpc socket) config {
	return config{
		dir: dir, top: fmt.Sprintf("listen = %q", http.address), grpc: grpc.address,
		services: []service{tinyAdd}, sockets: []socket{grpc, http},
	}
}

// waysToLoad are clients that send one query after the other.
var waysToLoad = map[string]func(p *process) (ask func(random *rand.Rand) error, end func()){
	"HTTP, a connection for each query": func(p *process) (func(*rand.Rand) error, func()) { return overHTTP(p, true) },
	"HTTP, one connection":              func(p *process) (func(*rand.Rand) error, func()) { return overHTTP(p, false) },
	"gRPC, a connection for each query": func(p *process) (func(*rand.Rand) error, func()) {
		at := p.grpcAddress()
		return func(random *rand.Rand) error {
			c, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				return err
			}
			defer c.Close()
			return adds(inference.NewGRPCInferenceServiceClient(c))(random.Int32N(1000))
		}, func() {}
	},
	"gRPC, one connection": func(p *process) (func(*rand.Rand) error, func()) {
		c, err := grpc.NewClient(p.grpcAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			p.t.Fatal(err)
		}
		ask := adds(inference.NewGRPCInferenceServiceClient(c))
		return func(random *rand.Rand) error { return ask(random.Int32N(1000)) }, func() { c.Close() }
	},
}

func overHTTP(p *process, fresh bool) (ask func(*rand.Rand) error, end func()) {
	c := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: fresh, DisableCompression: true}}
	return func(random *rand.Rand) error {
		q := sum(random, 1)
		return checkSum(q, p.inferBy(c, tinyAdd.name, q))
	}, c.CloseIdleConnections
}

// A daemon whose sockets are held by others is stopped and started again under load. Who
// connects meanwhile waits; no connection is refused and no query is lost.
func TestRestartQueuesConnections(t *testing.T) {
	t.Parallel()
	web, remote := hold(t, "http"), hold(t, "grpc")
	c := inherited(t.TempDir(), web, remote)
	p := serve(t, c)
	if p.address != web.address || p.grpcAddress() != remote.address {
		t.Fatalf("it listens on %s and %s, and not on the sockets that it was given", p.address, p.grpcAddress())
	}
	held := []string{web.inode(t), remote.inode(t)}
	for _, pid := range p.processes() {
		if pid == p.cmd.Process.Pid {
			continue
		}
		for _, fd := range descriptors(pid) {
			if slices.Contains(held, fd) {
				t.Errorf("the worker %d has inherited %s", pid, fd)
			}
		}
	}
	answered := map[string]*atomic.Int64{}
	var over atomic.Bool
	var load sync.WaitGroup
	defer load.Wait()
	defer over.Store(true)
	for name, way := range waysToLoad {
		n := new(atomic.Int64)
		answered[name] = n
		for client := range 3 {
			ask, end := way(p)
			load.Go(func() {
				defer end()
				random := rand.New(rand.NewPCG(7, uint64(client)))
				for !over.Load() && !t.Failed() {
					if err := ask(random); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					n.Add(1)
				}
			})
		}
	}
	more := func() {
		t.Helper()
		for name, n := range answered {
			before := n.Load()
			p.eventually("answers over "+name, func() bool { return n.Load() > before+20 || t.Failed() })
		}
	}
	for range 3 {
		more()
		p.stop()
		down := time.Now()
		waiting, err := net.Dial("tcp", web.address)
		if err != nil {
			t.Fatalf("the socket is gone with the daemon: %v", err)
		}
		defer waiting.Close()
		if p = serve(t, c); t.Failed() {
			return
		}
		t.Logf("it was down for %v", time.Since(down))
	}
	more()
}

// descriptors returns what the descriptors of a process are.
func descriptors(pid int) (list []string) {
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, path := range all {
		if link, err := os.Readlink(path); err == nil {
			list = append(list, link)
		}
	}
	return list
}

// A daemon that inherits an admin socket answers there, and leaves the file.
func TestInheritedAdminSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "admin.sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := config{top: fmt.Sprintf("admin_socket = %q", path), services: []service{tinyAdd}, sockets: []socket{{"admin", path, f}}}
	for range 2 {
		p := serve(t, c)
		if text, code := p.command("drain", "--config", p.path); code != 0 {
			t.Errorf("drain: %d, %s", code, text)
		}
		if !strings.Contains(p.logged(), `"inherited":"admin"`) {
			t.Error("the log does not say that the socket was inherited")
		}
		p.stop()
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
