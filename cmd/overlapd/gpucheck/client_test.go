package gpucheck

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/cuda/driver/fakedriver"
	"github.com/overlapd/overlapd/cuda/mps/fakemps"
)

// What the fake driver returns when its server is gone, and without memory.
const (
	outOfMemory = 2
	serverGone  = 806
)

// actClient is a client of the fake MPS: what RunClient is with a GPU.
func actClient(in io.Reader, out io.Writer) error {
	r := clientReport{PID: os.Getpid(), UUID: testDevice, Free: 80 << 30, Total: 80 << 30, Pinned: "done"}
	limit := r.Free
	if text, ok := strings.CutPrefix(os.Getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0="); ok {
		mebi, _ := strconv.ParseInt(strings.TrimSuffix(text, "M"), 10, 64)
		limit = mebi << 20
		r.Free = limit
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
	encode := json.NewEncoder(out)
	if err := encode.Encode(r); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		a := clientReport{PID: r.PID}
		var bytes int64
		if n, _ := fmt.Sscanf(lines.Text(), "alloc %d", &bytes); n == 1 {
			a.Free = limit - bytes
		}
		switch {
		case gone():
			a.Error, a.Result = "the server is gone", serverGone
		case bytes > limit:
			a.Error, a.Result = "too much", outOfMemory
		}
		if err := encode.Encode(a); err != nil {
			return err
		}
	}
	return nil
}

// fakeDriver builds the CUDA driver that needs no GPU.
func fakeDriver(t *testing.T, devices, bytes uint64) *fakedriver.Driver {
	t.Helper()
	t.Setenv("FAKE_CUDA", "") // it is set anew
	d, err := fakedriver.Build(t.TempDir(), devices, bytes)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// reports reads what a client wrote.
func reports(t *testing.T, out *bytes.Buffer) (list []clientReport) {
	t.Helper()
	for d := json.NewDecoder(out); d.More(); {
		var r clientReport
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

func TestRunClient(t *testing.T) {
	library := fakeDriver(t, 2, 4<<20).Path
	var out bytes.Buffer
	if err := RunClient(library, "1", strings.NewReader("copy\nalloc 1048576\nalloc 8388608\nalloc much\nfly\n"), &out); err != nil {
		t.Fatal(err)
	}
	r := reports(t, &out)
	if len(r) != 6 {
		t.Fatalf("%+v", r)
	}
	if r[0].PID != os.Getpid() || r[0].Ordinal != 1 || r[0].Total != 4<<20 || r[0].Free != 3<<20 || r[0].Pinned != "done" {
		t.Errorf("of itself: %+v", r[0])
	}
	if r[1].Error != "" || r[2].Error != "" || r[2].Free != 2<<20 {
		t.Errorf("a copy: %+v; some memory: %+v", r[1], r[2])
	}
	if r[3].Result != outOfMemory || r[4].Error == "" || !strings.Contains(r[5].Error, `"fly"`) {
		t.Errorf("too much memory: %+v; no number: %+v; something else: %+v", r[3], r[4], r[5])
	}
}

func TestRunClientWithout(t *testing.T) {
	var out bytes.Buffer
	if err := RunClient("/absent/libcuda.so.1", "", strings.NewReader(""), &out); err == nil {
		t.Error("it runs without a driver")
	}
	if r := reports(t, &out); len(r) != 1 || !strings.Contains(r[0].Error, "the CUDA driver library cannot be loaded") {
		t.Errorf("%+v", r)
	}
	out.Reset()
	if err := RunClient(fakeDriver(t, 1, 1<<10).Path, "", strings.NewReader(""), &out); err == nil {
		t.Error("it runs without memory")
	}
	if r := reports(t, &out); len(r) != 1 || r[0].Result != outOfMemory {
		t.Errorf("%+v", r)
	}
}

// TestClientWhenACallFails: whatever call fails, the client says which and with
// what result, and goes on or ends as it has to.
func TestClientWhenACallFails(t *testing.T) {
	const illegal = 700
	for _, c := range []struct {
		name string
		call int
		says string
		ends bool // before it does anything
	}{
		{"initializing", fakedriver.CallInit, "cuInit", true},
		{"counting devices", fakedriver.CallCount, "cuDeviceGetCount", true},
		{"making a context", fakedriver.CallRetain, "cuDevicePrimaryCtxRetain", true},
		{"making a stream", fakedriver.CallStreamCreate, "cuStreamCreate", true},
		{"memory", fakedriver.CallAlloc, "cuMemAlloc", true},
		{"asking for free memory", fakedriver.CallInfo, "cuMemGetInfo", true},
		{"copying in", fakedriver.CallCopyIn, "cuMemcpyHtoD", false},
		{"copying out", fakedriver.CallCopyOut, "cuMemcpyDtoH", false},
		{"waiting", fakedriver.CallStreamSync, "cuStreamSynchronize", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake := fakeDriver(t, 1, 4<<20)
			fake.Fail(c.call, 1, illegal)
			var out bytes.Buffer
			err := RunClient(fake.Path, "", strings.NewReader("copy\ncopy\n"), &out)
			r := reports(t, &out)
			if (err != nil) != c.ends {
				t.Errorf("it ends with %v", err)
			}
			want := 3 // of itself, and of each copy
			at := 1
			if c.ends {
				want, at = 1, 0
			}
			if len(r) != want || !strings.Contains(r[at].Error, c.says) || r[at].Result != illegal {
				t.Fatalf("%+v", r)
			}
			if !c.ends && r[0].Error != "" {
				t.Errorf("of itself: %+v", r[0])
			}
		})
	}
}

// TestClientThatCannotPin says so and goes on: workers do, too.
func TestClientThatCannotPin(t *testing.T) {
	const refused = 801
	for call, says := range map[int]string{fakedriver.CallPin: "cuMemHostRegister", fakedriver.CallUnpin: "unpinning: cuMemHostUnregister"} {
		fake := fakeDriver(t, 1, 4<<20)
		fake.Fail(call, 1, refused)
		var out bytes.Buffer
		_ = RunClient(fake.Path, "", strings.NewReader("copy\n"), &out) // what is left pinned is a leak, and the process ends
		if r := reports(t, &out); len(r) != 2 || !strings.HasPrefix(r[0].Pinned, says) || r[0].Error != "" || r[1].Error != "" {
			t.Errorf("%+v", r)
		}
	}
}
