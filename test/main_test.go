package test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
)

// What TestMain prepares for all tests.
var (
	program  string // overlapd
	library  string // of ONNX Runtime
	modelDir string // of zoo models
)

func TestMain(m *testing.M) {
	flag.Parse()
	if args := strings.Fields(os.Getenv(peerVariable)); len(args) > 0 {
		if err := peer(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process that the race detector watches takes a second to end
	var err error
	if library, err = ort.Find(); err != nil {
		fmt.Println("skipping the tests of the whole daemon:", err)
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "overlapd-test-")
	if err == nil {
		err = prepare(dir)
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		spread()
		code = m.Run()
	}
	os.RemoveAll(dir)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// spread lets twice as many tests run at once as there are processors, unless
// the command line says how many: most wait for processes to start and to end.
func spread() {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0)))
	}
}

func prepare(dir string) error {
	program, modelDir = filepath.Join(dir, "overlapd"), filepath.Join(dir, "models")
	args := []string{"build", "-o", program}
	if raced {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "github.com/overlapd/overlapd/cmd/overlapd")...)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building overlapd: %w\n%s", err, out)
	}
	for _, name := range []string{"tiny_add", "tiny_identity", "tiny_mlp", "tiny_cnn", "tiny_bert"} {
		if _, err := zoo.Build(name, modelDir, 1, nil); err != nil {
			return err
		}
	}
	return nil
}

// zooFile returns the file of a tiny model.
func zooFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(modelDir, name+".onnx"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// sendSignal sends a signal to a process. To 0 or less it would go to a whole group, of which
// go test is one.
func sendSignal(pid int, s syscall.Signal) error {
	if pid <= 0 {
		return fmt.Errorf("%d is no process", pid)
	}
	return syscall.Kill(pid, s)
}
