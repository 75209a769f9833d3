package gpucheck

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cuda/driver"
)

// Report of a client: of itself first, then of each thing that it is asked to do.
type clientReport struct {
	PID     int    `json:"pid"`
	Ordinal int    `json:"ordinal"`
	UUID    string `json:"uuid"`
	Free    int64  `json:"free_bytes"`
	Total   int64  `json:"total_bytes"`
	Pinned  string `json:"pinned"` // what became of pinning a sealed memory file
	Error   string `json:"error"`
	Result  int    `json:"result"` // the driver's, of the error
}

// copyBytes is how much a client copies to and fro.
const copyBytes = 1 << 20

// RunClient is a process that uses a GPU and does little: it tells of itself, and
// then does what each line asks for, until there are no more. It is asked "copy",
// or "alloc N" for N bytes that it gives back. The library is the CUDA driver's,
// "" for the host's.
func RunClient(library, gpu string, in io.Reader, out io.Writer) error {
	// The driver's contexts are of threads.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	encode := json.NewEncoder(out)
	c, r, err := openClient(library, gpu)
	if err != nil {
		return errors.Join(err, encode.Encode(failed(r, err)))
	}
	defer c.close()
	if err := encode.Encode(r); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		r := clientReport{PID: os.Getpid()}
		if err := c.obey(lines.Text(), &r); err != nil {
			r = failed(r, err)
		}
		if err := encode.Encode(r); err != nil {
			return err
		}
	}
	return lines.Err()
}

// failed puts an error into a report.
func failed(r clientReport, err error) clientReport {
	r.Error = err.Error()
	var result driver.Result
	if errors.As(err, &result) {
		r.Result = int(result)
	}
	return r
}

// client holds what a client has open.
type client struct {
	context *driver.Context
	stream  *driver.Stream
	device  driver.Address
	host    []byte
}

func openClient(library, gpu string) (*client, clientReport, error) {
	r := clientReport{PID: os.Getpid()}
	lib, err := driver.Open(library)
	if err != nil {
		return nil, r, err
	}
	d, err := lib.Find(gpu)
	if err != nil {
		return nil, r, err
	}
	r.Ordinal, r.UUID = d.Ordinal, d.UUID
	c := &client{}
	if c.context, err = lib.Retain(d, driver.ContextOptions{}); err != nil {
		return nil, r, err
	}
	if c.stream, err = c.context.NewStream(0); err == nil {
		c.device, err = c.context.Alloc(copyBytes)
	}
	if err == nil {
		c.host, err = sealedMemory(2 * copyBytes)
	}
	if err != nil {
		c.close()
		return nil, r, err
	}
	r.Pinned = c.pin()
	r.Free, r.Total, err = c.context.MemInfo()
	return c, r, err
}

// pin pins the memory as workers do, and says what came of it.
func (c *client) pin() string {
	if err := c.context.Pin(c.host, false); err != nil {
		return err.Error()
	}
	if err := c.context.Unpin(c.host); err != nil {
		return "unpinning: " + err.Error()
	}
	return "done"
}

// sealedMemory maps memory that can neither grow nor shrink, as arenas are.
func sealedMemory(bytes int) ([]byte, error) {
	fd, err := unix.MemfdCreate("overlapd-client", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(bytes)); err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		return nil, err
	}
	return unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// close gives back what is open. The process ends then: what fails does not matter.
func (c *client) close() {
	if c.device != 0 {
		_ = c.context.Free(c.device)
	}
	if c.stream != nil {
		_ = c.stream.Close()
	}
	_ = c.context.Release()
	if c.host != nil {
		_ = unix.Munmap(c.host)
	}
}

// obey does what a line asks for.
func (c *client) obey(line string, r *clientReport) error {
	what, arg, _ := strings.Cut(line, " ")
	switch what {
	case "copy":
		return c.copy()
	case "alloc":
		bytes, err := strconv.ParseInt(arg, 10, 64)
		if err != nil {
			return err
		}
		address, err := c.context.Alloc(bytes)
		if err != nil {
			return err
		}
		r.Free, r.Total, err = c.context.MemInfo()
		return errors.Join(err, c.context.Free(address))
	}
	return fmt.Errorf("%q: there are copy and alloc", what)
}

// copy copies to the device and back, and compares.
func (c *client) copy() error {
	src, dst := c.host[:copyBytes], c.host[copyBytes:]
	for i := range src {
		src[i] = byte(i * 7)
	}
	clear(dst)
	if err := c.stream.CopyIn(c.device, src); err != nil {
		return err
	}
	if err := c.stream.CopyOut(dst, c.device); err != nil {
		return err
	}
	if err := c.stream.Sync(); err != nil {
		return err
	}
	if string(src) != string(dst) {
		return errors.New("what came back is not what was copied")
	}
	return nil
}
