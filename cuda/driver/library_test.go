package driver

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/internal/fakes/fakedriver"
)

func TestOpen(t *testing.T) {
	if library.path != fake.Path {
		t.Errorf("path %q", library.path)
	}
	missing := filepath.Join(t.TempDir(), LibraryName)
	if _, err := Open(missing); !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), "install the package") {
		t.Errorf("no file: %v", err)
	}
	failNext(t, fakedriver.CallInit, NoDevice)
	if _, err := Open(fake.Path); !errors.Is(err, NoDevice) {
		t.Errorf("no GPU: %v", err)
	}
}

// TestOpenOld loads a driver that has a part of the functions.
func TestOpenOld(t *testing.T) {
	source := filepath.Join(t.TempDir(), "old.c")
	if err := os.WriteFile(source, []byte("int cuInit(unsigned f) { return f; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "libcuda-old.so")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", old, source).CombinedOutput(); err != nil {
		t.Fatalf("compiling a library: %v: %s", err, out)
	}
	if _, err := Open(old); !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), "cuDeviceGetCount") {
		t.Errorf("old driver: %v", err)
	}
}

func TestDevices(t *testing.T) {
	devices, err := library.devices()
	if err != nil || len(devices) != 2 {
		t.Fatalf("devices() = %v, %v, want two", devices, err)
	}
	d := devices[1]
	if d.Ordinal != 1 || d.Name != "Fake GPU 1" || d.capability() != "9.0" || d.TotalBytes != 1<<20 ||
		d.UUID != "a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1" {
		t.Errorf("the second device is %+v", d)
	}
	for _, call := range []int{fakedriver.CallCount, fakedriver.CallUUID} {
		failNext(t, call, Deinitialized)
		if _, err := library.devices(); !errors.Is(err, Deinitialized) {
			t.Errorf("call %d: %v", call, err)
		}
	}
}

func TestFind(t *testing.T) {
	for name, want := range map[string]int{
		"": 0, "0": 0, "1": 1, "GPU-a1": 1, "MIG-A0a0": 0, "a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1": 1,
	} {
		if d, err := library.find(name); err != nil || d.Ordinal != want {
			t.Errorf("%q is %+v, %v; expected %d", name, d, err, want)
		}
	}
	for _, name := range []string{"2", "-1", "GPU-", "GPU-a", "b", "a0a0a0a0-a1"} {
		if d, err := library.find(name); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q is %+v, %v", name, d, err)
		}
	}
	page[fakedriver.Devices] = 0
	defer func() { page[fakedriver.Devices] = 2 }()
	if _, err := library.find(""); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "no devices") {
		t.Errorf("without a device: %v", err)
	}
}
