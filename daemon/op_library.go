package daemon

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/overlapd/overlapd/internal/textfile"
)

// registerOperators is the function that every library of custom operators exports.
const registerOperators = "RegisterCustomOps"

// machines maps names of processors in Go to those in ELF files.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// writableByOthers is the bit of a file's mode with which every user may change the file.
const writableByOthers = 0o002

// checkOpLibrary returns what is wrong with a library of custom operators, or why the file
// cannot be read within limit. It does not load the library, because that runs its code.
func checkOpLibrary(ctx context.Context, path string, limit time.Duration) (fault, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	fault, err = textfile.Within(ctx, path, func() (fault, err error) {
		f, err := textfile.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if mode := info.Mode().Perm(); mode&writableByOthers != 0 {
			return fmt.Errorf("every user of this machine can change it (mode %04o), and workers run its code: chmod o-w %s", mode, path), nil
		}
		return operatorFault(f), nil
	})
	switch {
	case err != nil:
		err = fmt.Errorf("op_libraries: %w", err)
	case fault != nil:
		fault = fmt.Errorf("op_libraries: %s: %w", path, fault)
	}
	return fault, err
}

// operatorFault returns why a file cannot be a library of custom operators for this machine.
func operatorFault(file io.ReaderAt) (fault error) {
	// The reader of ELF files is not made for hostile ones.
	defer func() {
		if p := recover(); p != nil {
			fault = fmt.Errorf("it is a damaged ELF file (%v)", p)
		}
	}()
	f, err := elf.NewFile(file)
	if err != nil {
		return fmt.Errorf("it is not a shared library of Linux (%w): name the .so file", err)
	}
	defer f.Close()
	if want := machines[runtime.GOARCH]; f.Machine != want {
		return fmt.Errorf("it is for the processor %v, and this machine has %v: take the build for this machine", f.Machine, want)
	}
	if f.Type != elf.ET_DYN {
		return fmt.Errorf("it is an ELF file of type %v and not a shared library: link it with -shared", f.Type)
	}
	// The names of functions are enough. Reading the symbols takes time quadratic in the size of
	// a hostile file, and the worker has the last word.
	var names []byte
	if strings := f.Section(".dynstr"); strings != nil {
		names, err = strings.Data()
	}
	if err != nil || !bytes.Contains(names, []byte("\x00"+registerOperators+"\x00")) {
		return fmt.Errorf("it has no function %s: it is not a library of custom operators for ONNX Runtime", registerOperators)
	}
	return nil
}
