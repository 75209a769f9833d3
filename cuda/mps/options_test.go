package mps

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/child"
)

func TestDefaultsAreValid(t *testing.T) {
	o := Options{Device: testDevice, Directory: "/run/overlapd/mps"}.withDefaults()
	if err := errors.Join(o.validate(), o.validateOwn()); err != nil {
		t.Error(err)
	}
	if kept := (Options{Poll: time.Hour, Policy: child.Policy{RestartLimit: 9}}).withDefaults(); kept.Poll != time.Hour || kept.RestartLimit != 9 {
		t.Errorf("%+v", kept)
	}
}

func TestValidateNamesAllFaults(t *testing.T) {
	err := Options{Device: "0,1", Directory: "relative"}.validate()
	if !errors.Is(err, ErrOptions) {
		t.Fatal(err)
	}
	for _, part := range []string{`directory "relative"`, `device "0,1"`, "nvidia-smi -L"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %q in: %v", part, err)
		}
	}
}

func TestDeviceUUID(t *testing.T) {
	for device, fits := range map[string]bool{
		testDevice: true, "MIG-4e0b6c2a-8d1f-4b7a-9c3e-0123456789ab": true, "MIG-GPU-4e0b6c2a-8d1f/1/0": true,
		"": true, "0": false, "GPU-": false, "GPU-a,GPU-b": false, "GPU-a\n": false, "xGPU-a": false,
	} {
		o := Options{Device: device, Directory: "/d"}.withDefaults()
		if err := o.validate(); (err == nil) != fits {
			t.Errorf("%q: %v", device, err)
		}
	}
}

// The longest directory whose sockets have paths that the system allows.
func TestSocketPathLimit(t *testing.T) {
	room := socketLimit - len("/"+pipeName+"/"+longestSocket)
	o := Options{Device: testDevice, Directory: "/" + strings.Repeat("d", room-1)}
	if err := o.validateOwn(); err != nil {
		t.Error(err)
	}
	if n := len(filepath.Join(o.Directory, pipeName, longestSocket)); n != 107 {
		t.Errorf("%d bytes", n)
	}
	o.Directory += "ddd"
	if err := o.validateOwn(); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "110 bytes") || !strings.Contains(err.Error(), "3 bytes shorter") {
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

func TestExistingPipe(t *testing.T) {
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", "")
	if got := existingPipe(); got != DefaultPipe {
		t.Error(got)
	}
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", "/elsewhere")
	if got := existingPipe(); got != "/elsewhere" {
		t.Error(got)
	}
}
