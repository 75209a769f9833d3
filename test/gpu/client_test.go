package gpu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/cuda/driver"
	"github.com/overlapd/overlapd/internal/fakes/fakedriver"
	"github.com/overlapd/overlapd/internal/fakes/fakemps"
	"github.com/overlapd/overlapd/segments/wire"
)

const (
	// clientVariable makes this binary a client of the CUDA driver, "cuda", or of
	// the fake MPS, "fake".
	clientVariable = "OVERLAPD_GPU_CLIENT"

	// gpuVariable is which GPU a client uses.
	gpuVariable = "OVERLAPD_GPU_CLIENT_GPU"

	// clientPatience is how long a client may take to do one thing. The first one
	// of a server waits for it.
	clientPatience = 15 * time.Second

	// copyBytes is how much a client copies to and fro.
	copyBytes = 1 << 20
)

// clientReport is what a client answers: of itself first, then of each thing that it
// is asked to do.
type clientReport struct {
	PID     int    `json:"pid"`
	Ordinal int    `json:"ordinal"`
	Free    int64  `json:"free_bytes"`
	Total   int64  `json:"total_bytes"`
	Pinned  string `json:"pinned"` // what became of pinning a sealed memory file
	Error   string `json:"error"`
	Result  int    `json:"result"` // the driver's, of the error
}

// clientMain is a process that uses a GPU and does little: it reports of itself, and
// then does what each line of its input asks for.
func clientMain(role string) int {
	run := func() error { return runClient("", os.Getenv(gpuVariable), os.Stdin, os.Stdout) }
	if role == "fake" {
		run = func() error { return runFakeClient(os.Stdin, os.Stdout) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runClient is asked "copy", or "alloc N" for N bytes that it gives back. The library
// is the CUDA driver's, "" for the host's.
func runClient(library, gpu string, in io.Reader, out io.Writer) error {
	runtime.LockOSThread() // the driver's contexts are of threads
	defer runtime.UnlockOSThread()
	var c client
	r, err := c.open(library, gpu)
	if err != nil {
		return errors.Join(err, json.NewEncoder(out).Encode(r.failed(err)))
	}
	return answerLines(r, in, out, c.obey)
}

// answerLines reports of the client, and then answers each line.
func answerLines(r clientReport, in io.Reader, out io.Writer, obey func(line string, r *clientReport) error) error {
	encode := json.NewEncoder(out)
	err := encode.Encode(r)
	for lines := bufio.NewScanner(in); err == nil && lines.Scan(); {
		r := clientReport{PID: os.Getpid()}
		if err := obey(lines.Text(), &r); err != nil {
			r = r.failed(err)
		}
		err = encode.Encode(r)
	}
	return err
}

func (r clientReport) failed(err error) clientReport {
	r.Error = err.Error()
	var result driver.Result
	if errors.As(err, &result) {
		r.Result = int(result)
	}
	return r
}

// client holds what a client has open until its process ends.
type client struct {
	context *driver.Context
	stream  *driver.Stream
	device  uint64
	host    []byte
}

func (c *client) open(library, gpu string) (clientReport, error) {
	r := clientReport{PID: os.Getpid()}
	lib, err := driver.Open(library)
	if err != nil {
		return r, err
	}
	if c.context, err = lib.Retain(gpu, false); err != nil {
		return r, err
	}
	r.Ordinal = c.context.Ordinal()
	if c.stream, err = c.context.NewStream(); err == nil {
		c.device, err = c.context.Alloc(copyBytes)
	}
	if err == nil {
		c.host, err = inputMemory(2 * copyBytes)
	}
	if err != nil {
		return r, err
	}
	r.Pinned = "done"
	if err := c.context.Pin(c.host); err != nil {
		r.Pinned = err.Error()
	} else if err := c.context.Unpin(c.host); err != nil {
		r.Pinned = "unpinning: " + err.Error()
	}
	r.Free, r.Total, err = c.context.MemInfo()
	return r, err
}

// inputMemory is memory as the inputs of a service on a GPU lie in: it can neither grow nor
// shrink.
func inputMemory(bytes int64) ([]byte, error) {
	arena, err := wire.NewInputArena(bytes, true)
	if err != nil {
		return nil, err
	}
	_, data, err := arena.Alloc(bytes)
	return data, err
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
	if !bytes.Equal(src, dst) {
		return errors.New("what came back is not what was copied")
	}
	return nil
}

// clientProcess is a client in a process of its own.
type clientProcess struct {
	clientReport // of itself
	cmd          *exec.Cmd
	in           io.WriteCloser
	answers      chan clientReport // closed with its output
}

// startClient starts a process that uses the GPU in an environment, and waits until
// it reports of itself.
func (c *check) startClient(ctx context.Context, env []string) (*clientProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &clientProcess{cmd: exec.CommandContext(ctx, self), answers: make(chan clientReport)}
	p.cmd.Env = append(env[:len(env):len(env)], clientVariable+"="+c.clientRole)
	p.cmd.WaitDelay = processGrace
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.answers)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var a clientReport
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				a.Error = fmt.Sprintf("it printed %q", lines.Text())
			}
			p.answers <- a
		}
	}()
	if p.clientReport, err = p.answer(ctx); err != nil {
		p.stop()
	}
	return p, err
}

// answer waits for the next one. The error is the client's own, too.
func (p *clientProcess) answer(ctx context.Context) (clientReport, error) {
	select {
	case a, ok := <-p.answers:
		switch {
		case !ok:
			return a, errors.New("a client ended by itself")
		case a.Error != "":
			return a, errors.New(a.Error)
		}
		return a, nil
	case <-time.After(clientPatience):
		return clientReport{}, fmt.Errorf("a client did not answer within %v", clientPatience)
	case <-ctx.Done():
		return clientReport{}, ctx.Err()
	}
}

// ask has the client do something.
func (p *clientProcess) ask(ctx context.Context, what string) (clientReport, error) {
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		return clientReport{}, fmt.Errorf("a client is gone: %w", err)
	}
	return p.answer(ctx)
}

// stop ends the client: by itself, else by force.
func (p *clientProcess) stop() {
	_ = p.in.Close()
	late := time.AfterFunc(processGrace, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	for range p.answers {
	}
	_ = p.cmd.Wait() // how it ends is no matter
}

// runFakeClient is a client of the fake MPS, on a GPU of 80 GiB.
func runFakeClient(in io.Reader, out io.Writer) error {
	const outOfMemory, serverGone = driver.Result(2), driver.Result(806)
	r := clientReport{PID: os.Getpid(), Free: 80 << 30, Total: 80 << 30, Pinned: "done"}
	if mebi, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(os.Getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0="), "M"), 10, 64); err == nil {
		r.Free = mebi << 20
	}
	gone := func() bool { return false }
	if pipe := os.Getenv(pipeVariable); pipe != "/dev/null" {
		c, err := fakemps.Connect(pipe)
		if err != nil {
			return err
		}
		defer c.Close()
		gone = func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Server))
			return err != nil || strings.Contains(string(stat), ") Z ") // nobody has waited for it yet
		}
	}
	return answerLines(r, in, out, func(line string, a *clientReport) error {
		var bytes int64
		_, _ = fmt.Sscanf(line, "alloc %d", &bytes) // a copy takes none
		switch a.Free = r.Free - bytes; {
		case gone():
			return serverGone
		case bytes > r.Free:
			return outOfMemory
		}
		return nil
	})
}

// TestClient: a client does what it is asked with the fake driver, and answers with the call
// and the result where one fails.
func TestClient(t *testing.T) {
	const illegal = 700
	for name, c := range map[string]struct {
		call int // that fails
		want string
	}{
		"a context":   {fakedriver.CallRetain, "cuDevicePrimaryCtxRetain"},
		"memory":      {fakedriver.CallAlloc, "cuMemAlloc"},
		"copying in":  {fakedriver.CallCopyIn, "cuMemcpyHtoD"},
		"copying out": {fakedriver.CallCopyOut, "cuMemcpyDtoH"},
		"nothing":     {0, `"pinned":"done"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("FAKE_CUDA", "") // it is set anew
			fake, err := fakedriver.Build(t.TempDir(), 1, 4<<20)
			if err != nil {
				t.Fatal(err)
			}
			if c.call != 0 {
				fake.Fail(c.call, 1, illegal)
			}
			var out strings.Builder
			_ = runClient(fake.Path, "", strings.NewReader("copy\nalloc 1048576\n"), &out) // it says why in what it answers
			if got := out.String(); !strings.Contains(got, c.want) || strings.Contains(got, fmt.Sprintf(`"result":%d`, illegal)) != (c.call != 0) {
				t.Error(got)
			}
		})
	}
}
