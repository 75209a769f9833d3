package hostcheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/overlapd/overlapd/cuda/mps"
)

const (
	// socketMax is the longest path of a socket, in bytes, and socketName the
	// longest that an MPS control daemon binds below its directory.
	socketMax  = 107
	socketName = "pipe/control_privileged"

	othersWrite = 0o022 // permission of group and others to write
)

// lookAtMPS checks what the mode of MPS needs.
func (l *looking) lookAtMPS(ctx context.Context) {
	if l.MPS == MPSOff {
		if l.Services > 1 {
			l.add("mps-off")
		}
		return
	}
	if l.MPS == MPSExisting {
		l.join(ctx, l.MPSDir)
		return
	}
	where := ""
	if l.OwnMPSDir != nil {
		dir := l.OwnMPSDir(l.UUID)
		l.lookAtDirectory(dir)
		where = ", our control daemon will live in " + dir
	}
	l.lookForStrangers(ctx, where)
}

// lookForStrangers looks who serves the places that programs look in by themselves:
// it is not ours.
func (l *looking) lookForStrangers(ctx context.Context, where string) {
	nobody := true
	for _, dir := range []string{mps.DefaultPipe, mps.RootPipe} {
		err := l.ask(ctx, dir)
		if errors.Is(err, mps.ErrNoAnswer) || errors.Is(err, mps.ErrCommand) {
			err = l.ask(ctx, dir) // it may fail once when several are asked
		}
		switch {
		case errors.Is(err, mps.ErrNoProgram):
			l.add("mps-program", "why", err.Error())
			return
		case !errors.Is(err, mps.ErrNoDaemon):
			l.add("mps-stranger", "path", dir)
			nobody = false
		}
	}
	if nobody {
		l.add("mps", "what", "the control program is there"+where+", and nobody serves "+mps.DefaultPipe+" or "+mps.RootPipe)
	}
}

// join checks a daemon that somebody else runs.
func (l *looking) join(ctx context.Context, dir string) {
	err := l.ask(ctx, dir)
	if dir == "" {
		dir = mps.DefaultPipe
	}
	switch {
	case errors.Is(err, mps.ErrNoProgram):
		l.add("mps-program", "why", err.Error())
	case err != nil:
		l.add("mps-existing", "path", dir, "why", err.Error())
	default:
		l.add("mps", "what", "a control daemon serves "+dir)
	}
}

// ask attaches to whoever serves a directory, and lets go again.
func (l *looking) ask(ctx context.Context, dir string) error {
	if dir != "" {
		dir = l.path(dir)
	}
	control, err := mps.Existing(ctx, mps.Options{Program: l.MPSProgram, Directory: dir})
	if err != nil {
		return err
	}
	return control.Stop()
}

// lookAtDirectory checks that the user may make the directory of a control daemon,
// or has it alone.
func (l *looking) lookAtDirectory(dir string) {
	if n := len(filepath.Join(dir, socketName)) - socketMax; n > 0 {
		l.add("mps-path", "path", dir, "bytes", fmt.Sprint(n))
	}
	if err := l.usable(dir); err != nil {
		l.add("mps-directory", "path", dir, "user", fmt.Sprint(l.User), "why", err.Error())
	}
}

func (l *looking) usable(dir string) error {
	info, err := os.Lstat(l.path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		parent := dir
		for errors.Is(err, fs.ErrNotExist) && parent != "/" {
			parent = filepath.Dir(parent)
			_, err = os.Lstat(l.path(parent))
		}
		if err := l.Access(l.path(parent)); err != nil {
			return fmt.Errorf("it cannot be made in %s: %w", parent, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("it is a %v", info.Mode().Type())
	case ok && int(owner.Uid) != l.User:
		return fmt.Errorf("it belongs to user %d", owner.Uid)
	case info.Mode().Perm()&othersWrite != 0:
		return fmt.Errorf("others may write to it (mode %v)", info.Mode().Perm())
	}
	return nil
}
