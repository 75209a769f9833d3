package fakemps

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// startServerLocked starts a server in a session of its own, so that a test
// sees whether one is left behind.
func (d *daemon) startServerLocked() string {
	if d.mu.server != nil {
		return ""
	}
	leash, hold, err := os.Pipe()
	if err != nil {
		return err.Error()
	}
	defer leash.Close()
	cmd := exec.Command("/proc/self/exe")
	if path, err := serverPath(d.pipe); err == nil {
		cmd.Path = path
	}
	cmd.Args = []string{serverProgram}
	if _, ok := told(d.pipe, "orphan"); !ok {
		cmd.Stdin = leash
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	ready, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		hold.Close()
		return err.Error()
	}
	_, _ = ready.Read(make([]byte, 1)) // it listens
	s := &server{pid: cmd.Process.Pid, status: "ACTIVE", leash: hold}
	if _, ok := told(d.pipe, "slow"); ok {
		s.status = "INITIALIZING"
	}
	d.mu.server = s
	d.log("Starting new server %d for user %d", s.pid, os.Getuid())
	go func() {
		err := cmd.Wait()
		d.mu.Lock()
		defer d.mu.Unlock()
		hold.Close()
		d.mu.server, d.mu.clients = nil, nil
		d.log("Server %d exited with status %v", s.pid, err)
	}()
	return ""
}

// serverPath makes the server's name beside the socket, so that the kernel
// calls it by that.
func serverPath(pipe string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(pipe, serverProgram)
	if err := os.Symlink(self, path); err != nil && !os.IsExist(err) {
		return "", err
	}
	return path, nil
}
