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

// commName is what the kernel calls the control daemon and its servers: the
// first 15 bytes of their file's name.
const commName = "nvidia-cuda-mps"

// leftovers returns the control daemons and servers that live in a directory
// of ours. Their environment says so; a console has no log directory.
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

// serves reports whether a process is of MPS, of this user, and lives in d.
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

// userOf returns whose a process of MPS is. It is -1 if it is gone, or is not
// of MPS: a daemon in another container numbers its processes otherwise.
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

// sweep ends what a dead control daemon of ours has left behind, or what a
// dead overlapd has. Such a daemon is not taken over: it is not our child, so
// that it would neither die with us nor tell us when it dies, and what it was
// told before is not known. Its clients were the workers of the dead overlapd
// and died with that.
func sweep(ctx context.Context, console *Console, d *directory) error {
	if len(leftovers(d)) == 0 {
		return nil
	}
	_ = console.Quit(ctx) // what counts is whether they end
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

// killServing kills a process and waits for its end. The descriptor makes sure
// that it is the process that was looked at.
func killServing(ctx context.Context, pid int, d *directory) error {
	w, err := watchProcess(pid)
	if err != nil {
		return nil // gone
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

// watched is a process that is not our child, held so that its number cannot
// come to mean another.
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

// wait returns true when the process has ended, false when w was closed.
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
