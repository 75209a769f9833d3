package mps

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/child"
)

func TestDefaults(t *testing.T) {
	if o := (Options{}).withDefaults(); o.ReadyTimeout <= 0 || o.CommandTimeout <= 0 || o.StopTimeout <= 0 || o.Poll <= 0 || o.RestartLimit != 5 {
		t.Errorf("%+v", o)
	}
	if kept := (Options{Poll: time.Hour, Policy: child.Policy{RestartLimit: 9}}).withDefaults(); kept.Poll != time.Hour || kept.RestartLimit != 9 {
		t.Errorf("%+v", kept)
	}
}

// The longest directory whose sockets have paths that the system allows.
func TestSocketPathLimit(t *testing.T) {
	room := socketLimit - len("/"+pipeName+"/"+longestSocket)
	path := "/" + strings.Repeat("d", room-1)
	if err := checkLength(path); err != nil {
		t.Error(err)
	}
	if n := len(filepath.Join(path, pipeName, longestSocket)); n != 107 {
		t.Errorf("%d bytes", n)
	}
	if err := CheckDirectory(path + "ddd"); !errors.Is(err, ErrDirectory) || !strings.Contains(err.Error(), "110 bytes") || !strings.Contains(err.Error(), "3 bytes shorter") {
		t.Error(err)
	}
}

func TestFindProgram(t *testing.T) {
	o := newOptions(t)
	t.Setenv("PATH", o.Directory)
	if got, err := findProgram(""); err != nil || got != o.Program {
		t.Error(got, err)
	}
	t.Setenv("PATH", filepath.Join(o.Directory, "none"))
	_, err := findProgram("")
	if !errors.Is(err, ErrNoProgram) || !strings.Contains(err.Error(), "nvidia-cuda-mps") {
		t.Error(err)
	}
}
