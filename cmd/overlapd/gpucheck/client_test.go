package gpucheck

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

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

// fakeDriver builds the CUDA driver that needs no GPU and returns its path.
func fakeDriver(t *testing.T, devices, bytes uint64) string {
	t.Helper()
	const memoryLimit, deviceCount, version, words = 0, 2, 3, 512
	dir := t.TempDir()
	library := filepath.Join(dir, "libcuda.so.1")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", library, "../../../cuda/driver/testdata/fakecuda.c").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v: %s", err, out)
	}
	page := make([]byte, words*8)
	for word, value := range map[int]uint64{memoryLimit: bytes, deviceCount: devices, version: 13000} {
		binary.LittleEndian.PutUint64(page[8*word:], value)
	}
	if err := os.WriteFile(filepath.Join(dir, "page"), page, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKE_CUDA", filepath.Join(dir, "page"))
	return library
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
	library := fakeDriver(t, 2, 4<<20)
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
	if err := RunClient(fakeDriver(t, 1, 1<<10), "", strings.NewReader(""), &out); err == nil {
		t.Error("it runs without memory")
	}
	if r := reports(t, &out); len(r) != 1 || r[0].Result != outOfMemory {
		t.Errorf("%+v", r)
	}
}

// failing makes a call of the fake driver fail from its n-th time on.
func failing(t *testing.T, call, after, result uint64) {
	t.Helper()
	const failAfter, failWith = 128, 192
	path := os.Getenv("FAKE_CUDA")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint64(page[8*(failAfter+call):], after)
	binary.LittleEndian.PutUint64(page[8*(failWith+call):], result)
	if err := os.WriteFile(path, page, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestClientWhenACallFails: whatever call fails, the client says which and with
// what result, and goes on or ends as it has to.
func TestClientWhenACallFails(t *testing.T) {
	const illegal = 700
	for _, c := range []struct {
		name  string
		call  uint64
		after uint64
		says  string
		ends  bool // before it does anything
	}{
		{"initializing", 0, 1, "cuInit", true},
		{"counting devices", 2, 1, "cuDeviceGetCount", true},
		{"making a context", 9, 1, "cuDevicePrimaryCtxRetain", true},
		{"making a stream", 13, 1, "cuStreamCreate", true},
		{"memory", 22, 1, "cuMemAlloc", true},
		{"asking for free memory", 24, 1, "cuMemGetInfo", true},
		{"copying in", 25, 1, "cuMemcpyHtoD", false},
		{"copying out", 26, 1, "cuMemcpyDtoH", false},
		{"waiting", 15, 1, "cuStreamSynchronize", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			library := fakeDriver(t, 1, 4<<20)
			failing(t, c.call, c.after, illegal)
			var out bytes.Buffer
			err := RunClient(library, "", strings.NewReader("copy\ncopy\n"), &out)
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
	const pin, unpin, refused = 28, 29, 801
	for call, says := range map[uint64]string{pin: "cuMemHostRegister", unpin: "unpinning: cuMemHostUnregister"} {
		library := fakeDriver(t, 1, 4<<20)
		failing(t, call, 1, refused)
		var out bytes.Buffer
		_ = RunClient(library, "", strings.NewReader("copy\n"), &out) // what is left pinned is a leak, and the process ends
		if r := reports(t, &out); len(r) != 2 || !strings.HasPrefix(r[0].Pinned, says) || r[0].Error != "" || r[1].Error != "" {
			t.Errorf("%+v", r)
		}
	}
}
