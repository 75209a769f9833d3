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
