package test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// hangingFolder is a mounted folder with one file, whose file system can be told not to
// answer reads any more.
type hangingFolder struct {
	device  *os.File
	content atomic.Pointer[[]byte]
	hangs   atomic.Bool
	once    sync.Once
	asked   chan struct{} // closed when a read hangs
}

const hangingFile = "m.onnx"

// mountHanging mounts a folder with a file (FUSE), and skips the test where that is not
// possible.
func mountHanging(t *testing.T, content []byte) (*hangingFolder, string) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no file system can be made: %v", err)
	}
	f := &hangingFolder{device: os.NewFile(uintptr(fd), "fuse"), asked: make(chan struct{})}
	f.content.Store(&content)
	dir := t.TempDir()
	if err := unix.Mount("fuse", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0", fd)); err != nil {
		f.device.Close()
		t.Skipf("no file system can be mounted: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.serve()
	}()
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		<-ended // reading fails once the folder is unmounted
		f.device.Close()
	})
	return f, filepath.Join(dir, hangingFile)
}

// Requests of the kernel, of which these are answered: see linux/fuse.h.
const (
	fuseLookup  = 1
	fuseForget  = 2
	fuseGetattr = 3
	fuseOpen    = 14
	fuseRead    = 15
	fuseRelease = 18
	fuseFlush   = 25
	fuseInit    = 26
	fuseOpendir = 27
	fuseCancel  = 36
	fuseBatch   = 42
)

// serve answers the kernel until the folder is unmounted.
func (f *hangingFolder) serve() {
	buffer := make([]byte, 1<<17+4096)
	for {
		n, err := syscall.Read(int(f.device.Fd()), buffer)
		if err == syscall.EINTR || err == syscall.ENOENT {
			continue
		}
		if err != nil {
			return
		}
		code, id, node, body := binary.LittleEndian.Uint32(buffer[4:]), buffer[8:16], binary.LittleEndian.Uint64(buffer[16:]), buffer[40:n]
		var reply []byte
		var fault syscall.Errno
		number := func(values ...uint64) {
			for _, v := range values {
				reply = binary.LittleEndian.AppendUint64(reply, v)
			}
		}
		switch code {
		case fuseForget, fuseCancel, fuseBatch:
			continue
		case fuseInit:
			reply = make([]byte, 64)
			for i, v := range []uint32{7, 31, 1 << 16, 1, 0, 1 << 17} { // protocol 7.31, and whoever waits for a page can be killed
				binary.LittleEndian.PutUint32(reply[4*i:], v)
			}
		case fuseLookup:
			if name := string(bytes.TrimRight(body, "\x00")); name != hangingFile {
				fault = syscall.ENOENT
				break
			}
			number(2, 0, 0, 0, 0)
			reply = append(reply, f.attributes(2)...)
		case fuseGetattr:
			number(0, 0)
			reply = append(reply, f.attributes(node)...)
		case fuseOpen, fuseOpendir, fuseRelease, fuseFlush:
			number(0, 0)
		case fuseRead:
			if f.hangs.Load() {
				f.once.Do(func() { close(f.asked) })
				continue
			}
			at, size := binary.LittleEndian.Uint64(body[8:]), uint64(binary.LittleEndian.Uint32(body[16:]))
			content := *f.content.Load()
			at = min(at, uint64(len(content)))
			reply = content[at:min(at+size, uint64(len(content)))]
		default:
			fault = syscall.ENOSYS
		}
		head := binary.LittleEndian.AppendUint32(nil, uint32(16+len(reply)))
		head = binary.LittleEndian.AppendUint32(head, uint32(-int32(fault)))
		_, _ = syscall.Write(int(f.device.Fd()), append(append(head, id...), reply...))
	}
}

// attributes returns those of the folder, which is node 1, or of the file.
func (f *hangingFolder) attributes(node uint64) []byte {
	mode, size := uint32(syscall.S_IFDIR|0o755), uint64(0)
	if node == 2 {
		mode, size = syscall.S_IFREG|0o644, uint64(len(*f.content.Load()))
	}
	a := make([]byte, 88)
	binary.LittleEndian.PutUint64(a, node)
	binary.LittleEndian.PutUint64(a[8:], size)
	binary.LittleEndian.PutUint32(a[60:], mode)
	binary.LittleEndian.PutUint32(a[64:], 1)
	return a
}

// A pipe in the place of a file that the configuration names is an error at once, wherever
// it is named, and hinders neither the next reload nor the end.
func TestReloadOfAPipe(t *testing.T) {
	t.Parallel()
	p := serve(t, administered(t, config{services: []service{tinyAdd}}))
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	before := p.config
	for _, c := range []struct {
		change func(*config)
		code   int
		says   string
	}{
		{func(c *config) {
			c.top += fmt.Sprintf("plan = %q\n", pipe)
			c.tables += "[[device]]\nname = \"a\"\nkind = \"cpu\"\ncores = \"0\"\n[[device]]\nname = \"b\"\nkind = \"cpu\"\ncores = \"1\"\n"
		}, 78, "not a regular file"},
		{func(c *config) { c.services = append(c.services, service{"new", pipe, ""}) }, 1, "it is not a regular file"},
	} {
		p.edit(c.change)
		p.reload(c.code, pipe, c.says)
		p.config = before
	}
	if err := os.Rename(pipe, p.path); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	p.await("the pipe is refused", func(e event) bool {
		return strings.Contains(e.Error, "not a regular file") && strings.Contains(e.Error, p.path)
	})
	if err := os.Remove(p.path); err != nil {
		t.Fatal(err)
	}
	p.edit(func(*config) {})
	p.reload(0, "nothing changed")
	p.stop()
}

// A reload that reads a model from a file system that does not answer gives up and names
// the file. Meanwhile queries are answered; the next reload is not held up, and neither is
// the end of the daemon.
func TestReloadFromAHangingFileSystem(t *testing.T) {
	t.Parallel()
	f, path := mountHanging(t, scaled(2))
	p := serve(t, administered(t, config{worker: "load_timeout = \"5s\"", services: []service{tinyAdd, {name: "far", model: path}}}))
	p.mustScale("far", 4)
	f.hangs.Store(true)
	reloaded := make(chan string, 1)
	go func() {
		text, _ := p.command("reload", "--config", p.path)
		reloaded <- text
	}()
	<-f.asked
	for range 200 {
		if status, _ := p.get("/overlapd/status"); status != http.StatusOK {
			t.Errorf("the status while a file hangs: %d", status)
		}
	}
	if text := <-reloaded; !strings.Contains(text, path) || !strings.Contains(text, "does not answer within 5") {
		t.Errorf("the reload: %s", text)
	}
	p.reload(1, path, "an earlier attempt to read it has not returned")
	p.edit(func(c *config) { c.services = c.services[:1] })
	p.reload(0, "removed far")
	p.stop()
}
