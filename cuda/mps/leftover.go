package mps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// commName is the kernel's name of the control daemon and its servers: the first 15 bytes
// of their file name.
const commName = "nvidia-cuda-mps"

// leftovers returns the control daemons and servers that use a directory of ours. Their
// environment names it. A console does not count, because it has no log directory.
func leftovers(d *directory) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if pid, err := parsePID(e.Name()); err == nil && pid != os.Getpid() && serves(pid, d) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// serves reports whether a process belongs to MPS and to this user, and uses d.
func serves(pid int, d *directory) bool {
	if userOf(pid) != os.Geteuid() {
		return false
	}
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false
	}
	variables := strings.Split(string(env), "\x00")
	return !slices.ContainsFunc(d.variables(), func(v string) bool { return !slices.Contains(variables, v) })
}

// userOf returns the user of an MPS process. It returns -1 if the process is gone or is
// not one of MPS: the PIDs of a daemon in another container mean different processes here.
func userOf(pid int) int {
	folder := filepath.Join("/proc", strconv.Itoa(pid))
	comm, err := os.ReadFile(filepath.Join(folder, "comm"))
	if err != nil || strings.TrimSpace(string(comm)) != commName {
		return -1
	}
	info, err := os.Stat(folder)
	if err != nil {
		return -1
	}
	return ownerOf(info)
}

// sweep ends what a dead control daemon of ours, or a dead overlapd, has left behind. It
// does not take over a running daemon. That daemon is not our child, so it would neither
// die with us nor report its death, and its settings are unknown. Its clients were workers
// of the dead overlapd and died with it.
func sweep(ctx context.Context, console *console, d *directory) error {
	if len(leftovers(d)) == 0 {
		return nil
	}
	_ = console.Quit(ctx) // killLeftovers checks whether they ended
	return killLeftovers(ctx, d)
}

func killLeftovers(ctx context.Context, d *directory) error {
	var faults []error
	for _, pid := range leftovers(d) {
		if err := killServing(ctx, pid, d); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// killServing kills a process and waits for its end. It opens a pidfd before it checks the
// process, so that a reused PID cannot make it kill another one.
func killServing(ctx context.Context, pid int, d *directory) error {
	w, err := watchProcess(pid)
	if err != nil {
		return nil // it has ended
	}
	defer w.close()
	if !serves(pid, d) {
		return nil
	}
	if err := w.kill(); err != nil && err != unix.ESRCH {
		return fmt.Errorf("%w: process %d still lives in %s and cannot be killed: %w", ErrInUse, pid, d.path, err)
	}
	defer context.AfterFunc(ctx, w.close)()
	if !w.wait() {
		return fmt.Errorf("%w: process %d still lives in %s after SIGKILL: it hangs in the driver; look for Xid errors in dmesg, reboot if need be",
			ErrInUse, pid, d.path)
	}
	return nil
}

// watched is a process that is not our child. It is identified by a pidfd, because its PID
// may be reused.
type watched struct {
	pid  int
	file *os.File
}

func watchProcess(pid int) (*watched, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &watched{pid: pid, file: os.NewFile(uintptr(fd), "pidfd")}, nil
}

// wait returns true when the process has ended, and false when w is closed. It waits in
// Go's poller, without a thread.
func (w *watched) wait() bool {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 && err == nil
	})
	return err == nil
}

func (w *watched) kill() error {
	raw, err := w.file.SyscallConn()
	var sent error
	if err == nil {
		err = raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	}
	return cmp.Or(err, sent)
}

func (w *watched) close() { _ = w.file.Close() }
