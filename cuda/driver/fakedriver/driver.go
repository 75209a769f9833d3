package fakedriver

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// LibraryName is the file that Build makes, as the real driver's is called.
const LibraryName = "libcuda.so.1"

// pageVariable is where the library finds the file of its page, when it is loaded.
const pageVariable = "FAKE_CUDA"

//go:embed testdata/fakecuda.c
var source []byte

// Driver is one driver with its page.
type Driver struct {
	Path string   // of the library
	Page []uint64 // by the words of this package
}

// Build compiles the driver in a folder and sets the variable of this process by
// which the library finds its page. It has so many devices with so much memory
// each. The error has the compiler's words.
func Build(dir string, devices, bytes uint64) (*Driver, error) {
	d := &Driver{Path: filepath.Join(dir, LibraryName)}
	code := filepath.Join(dir, "fakecuda.c")
	if err := os.WriteFile(code, source, 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command("cc", "-O1", "-shared", "-fPIC", "-o", d.Path, code).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cc: %w: %s", err, out)
	}
	file := filepath.Join(dir, "page")
	if err := d.share(file); err != nil {
		return nil, err
	}
	d.Page[MemoryLimit], d.Page[Devices], d.Page[Version] = bytes, devices, 13000
	return d, os.Setenv(pageVariable, file)
}

// share makes the file of the page and maps it.
func (d *Driver) share(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(words * 8); err != nil {
		return err
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, words*8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	d.Page = unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), words)
	return nil
}

// Fail makes the n-th such call from now give the result, 0 none.
func (d *Driver) Fail(call int, n, result uint64) {
	d.Page[failWith+call] = result
	d.Page[failAfter+call] = n
}
