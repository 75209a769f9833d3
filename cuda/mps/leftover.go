package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// commName is what the kernel calls the control daemon and its servers: the
// first 15 bytes of their file's name.
const commName = "nvidia-cuda-mps"

// environMax is how much of a process's environment is searched.
const environMax = 1 << 20

// leftovers returns the control daemons and servers of this user that serve a
// pipe directory. Their environment says which.
func leftovers(pipe string) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if pid, err := parsePID(e.Name()); err == nil && pid != os.Getpid() && serves(pid, pipe) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// serves reports whether a process is of MPS, of this user, and serves pipe.
func serves(pid int, pipe string) bool {
	folder := filepath.Join("/proc", strconv.Itoa(pid))
	comm, err := os.ReadFile(filepath.Join(folder, "comm"))
	if err != nil || strings.TrimSpace(string(comm)) != commName || userOf(pid) != os.Geteuid() {
		return false
	}
	env, err := os.ReadFile(filepath.Join(folder, "environ"))
	if err != nil || len(env) > environMax {
		return false
	}
	return slices.Contains(strings.Split(string(env), "\x00"), "CUDA_MPS_PIPE_DIRECTORY="+pipe)
}

// userOf returns whose a process is, or -1 if it is gone.
func userOf(pid int) int {
	info, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	if err != nil {
		return -1
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1
	}
	return int(stat.Uid)
}

// sweep ends what a dead control daemon of ours has left behind, or what a
// dead overlapd has. Such a daemon is not taken over: it is not our child, so
// that it would neither die with us nor tell us when it dies, and what it was
// told before is not known. Its clients were the workers of the dead overlapd
// and died with that.
func sweep(ctx context.Context, console *Console, pipe string) error {
	if len(leftovers(pipe)) == 0 {
		return nil
	}
	_ = console.Quit(ctx) // what counts is whether they end
	return killLeftovers(ctx, pipe)
}

// killLeftovers kills all that serves a pipe directory.
func killLeftovers(ctx context.Context, pipe string) error {
	var faults []error
	for _, pid := range leftovers(pipe) {
		if err := killServing(ctx, pid, pipe); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// killServing kills a process and waits for its end. The descriptor makes sure
// that it is the process that was looked at.
func killServing(ctx context.Context, pid int, pipe string) error {
	w, err := watchProcess(pid)
	if err != nil {
		return nil // gone
	}
	defer w.close()
	if !serves(pid, pipe) {
		return nil
	}
	if err := w.kill(); err != nil && err != unix.ESRCH {
		return fmt.Errorf("%w: process %d still serves %s and cannot be killed: %w", ErrInUse, pid, pipe, err)
	}
	defer context.AfterFunc(ctx, w.close)()
	if !w.wait() {
		return fmt.Errorf("%w: process %d still serves %s after SIGKILL: it hangs in the driver; look for Xid errors in dmesg, reboot if need be",
			ErrInUse, pid, pipe)
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

func (w *watched) kill() (err error) {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	control := raw.Control(func(fd uintptr) { err = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	if control != nil {
		return control
	}
	return err
}

func (w *watched) close() { _ = w.file.Close() }
