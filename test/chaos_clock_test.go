package test

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Nobody can step the clock of one process: namespaces have monotonic clocks
// only, and Go's programs take the time from the kernel's vDSO rather than
// from a library that could be put before it. So the function in the vDSO is
// written over, in the copy that the process then has for itself, by one that
// asks the kernel and adds a number to CLOCK_REALTIME, and to no other clock.
// What the process sees is what it would see after `date -s`.

// A step of the clock cannot be made here.
var errNoStep = errors.New("the clock of a process cannot be stepped here")

// stepCode is clock_gettime(clock in %edi, time in %rsi), and eight bytes
// after it lies the number that is added.
var stepCode = []byte{
	0xb8, 228, 0, 0, 0, // mov  $__NR_clock_gettime, %eax
	0x0f, 0x05, // syscall
	0x85, 0xff, // test %edi, %edi: is it CLOCK_REALTIME?
	0x75, 0x0a, // jne  1f
	0x48, 0x8b, 0x0d, 0x04, 0, 0, 0, // mov offset(%rip), %rcx
	0x48, 0x01, 0x0e, // add %rcx, (%rsi)
	0xc3, // 1: ret
	0, 0, // the offset begins at 24, so that it is written at once
}

// clock is that of a process, which can be stepped.
type clock struct {
	memory *os.File
	offset int64 // where the number lies that is added
}

// takeClock makes a process's clock one that can be stepped. The process is
// stopped for a moment.
func takeClock(pid int) (c *clock, err error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("%w: its vDSO is not known on %s", errNoStep, runtime.GOARCH)
	}
	code := bytes.Clone(stepCode)
	binary.LittleEndian.PutUint32(code[14:], uint32(len(stepCode)-18)) // from the instruction's end
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoStep, err)
	}
	at, size, err := vdsoFunction(pid, memory)
	if err == nil && size < uint64(len(code))+8 {
		err = errNoStep
	}
	if err == nil {
		err = whileStopped(pid, at, size, func() error {
			_, err := memory.WriteAt(append(code, make([]byte, 8)...), int64(at))
			return err
		})
	}
	if err != nil {
		memory.Close()
		return nil, err
	}
	return &clock{memory, int64(at) + int64(len(code))}, nil
}

// step sets how far the clock is ahead of the machine's.
func (c *clock) step(by time.Duration) error {
	_, err := c.memory.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(by/time.Second)), c.offset)
	return err
}

func (c *clock) close() { c.memory.Close() }

// vdsoFunction returns where clock_gettime lies in a process, and its size.
func vdsoFunction(pid int, memory *os.File) (at, size uint64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	var from, to uint64
	for lines := bufio.NewScanner(bytes.NewReader(maps)); lines.Scan(); {
		if strings.HasSuffix(lines.Text(), "[vdso]") {
			fmt.Sscanf(lines.Text(), "%x-%x", &from, &to)
		}
	}
	image := make([]byte, to-from)
	if _, err := memory.ReadAt(image, int64(from)); err != nil || len(image) == 0 {
		return 0, 0, fmt.Errorf("%w: no vDSO: %v", errNoStep, err)
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, 0, err
	}
	symbols, err := file.DynamicSymbols()
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			return from + s.Value, s.Size, nil
		}
	}
	return 0, 0, fmt.Errorf("%w: the vDSO has no clock: %v", errNoStep, err)
}

// whileStopped runs f while a process is stopped and none of its threads is at
// the size bytes from at.
func whileStopped(pid int, at, size uint64, f func() error) error {
	const tries = 100
	for range tries {
		if err := sendSignal(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		time.Sleep(glance) // for all threads to stop
		clear := apart(pid, at, size)
		var err error
		if clear {
			err = f()
		}
		if cerr := sendSignal(pid, syscall.SIGCONT); cerr != nil || clear {
			return errors.Join(err, cerr)
		}
	}
	return fmt.Errorf("%w: it always asks for the time", errNoStep)
}

// apart reports whether all threads of a process are stopped, outside of a
// range of addresses.
func apart(pid int, at, size uint64) bool {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/syscall", pid, task.Name()))
		fields := strings.Fields(string(text))
		if err != nil || len(fields) < 2 { // "running"
			return false
		}
		var pc uint64
		fmt.Sscanf(fields[len(fields)-1], "0x%x", &pc)
		if pc >= at && pc < at+size {
			return false
		}
	}
	return len(tasks) > 0
}
