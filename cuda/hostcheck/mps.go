package hostcheck

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/overlapd/overlapd/cuda/mps"
)

// usesMPS reports whether workers run as clients of MPS, of ours or of another's.
func usesMPS(h *host) bool { return h.MPS.Own != nil || h.MPS.Join }

// ownMPS is the directory in which the daemon would start a control daemon.
func (h *host) ownMPS() []about {
	dir := h.MPS.Own(h.UUID)
	return []about{of(mps.CheckDirectory(h.path(dir)), "path", dir, "user", fmt.Sprint(h.User))}
}

// controlDaemons are the directories that may have a control daemon of others: the one to join, or
// the default ones, where there should be none. Without the program there is nothing to ask twice.
func (h *host) controlDaemons() (list []about) {
	if h.MPS.Join {
		return []about{of(h.ask(h.MPS.Directory), "path", cmp.Or(h.MPS.Directory, mps.DefaultPipe))}
	}
	for _, dir := range []string{mps.DefaultPipe, mps.RootPipe} {
		err := h.ask(dir)
		if errors.Is(err, mps.ErrNoAnswer) || errors.Is(err, mps.ErrCommand) {
			err = h.ask(dir) // it may fail once when several are asked
		}
		if list = append(list, of(err, "path", dir)); errors.Is(err, mps.ErrNoProgram) {
			break
		}
	}
	return list
}

// ask attaches to the control daemon of a directory and detaches from it.
func (h *host) ask(dir string) error {
	if dir != "" {
		dir = h.path(dir)
	}
	control, err := mps.Existing(h.ctx, mps.Options{Program: h.MPS.Program, Directory: dir})
	if err != nil {
		return err
	}
	return control.Stop()
}

// mpsWorks says which control daemon there will be.
func (h *host) mpsWorks(a *about) bool {
	if h.MPS.Join {
		a.add("what", "a control daemon serves "+cmp.Or(h.MPS.Directory, mps.DefaultPipe))
	} else {
		a.add("what", "the control program is there, our control daemon will live in "+h.MPS.Own(h.UUID)+", and nobody serves "+mps.DefaultPipe+" or "+mps.RootPipe)
	}
	return true
}
