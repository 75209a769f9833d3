package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// roleVariable makes the test binary a child process.
const roleVariable = "OVERLAPD_CONFORMANCE_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		goleak.VerifyTestMain(m)
	case "child":
		exitOn(Child(os.Stdin, os.Stdout))
	case "fake":
		exitOn(fakeChild())
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// fakeChild does what the names of the models say.
func fakeChild() error {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var t task
	if err := in.Decode(&t); err != nil {
		return err
	}
	for {
		var m model
		switch err := in.Decode(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		switch r := (Result{Model: m.Name, Outcome: Equal}); filepath.Base(m.Name) {
		case "crashes":
			fmt.Fprintln(os.Stderr, "last words")
			out.Encode(event{Plain: true})
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Hour)
		case "crashes ONNX Runtime":
			syscall.Kill(os.Getpid(), syscall.SIGSEGV)
			time.Sleep(time.Hour)
		case "hangs":
			out.Encode(event{Plain: true})
			time.Sleep(time.Hour)
		case "differs":
			r.Outcome, r.Reason = Failed, "element 3 is 1, expected 2"
			out.Encode(event{Result: &r})
		case "cannot load":
			return fmt.Errorf("no library")
		case "leaves":
			return nil
		case "babbles":
			fmt.Println("no JSON")
			return nil
		case "ends badly":
			out.Encode(event{Result: &r})
			return fmt.Errorf("cannot close")
		default:
			out.Encode(event{Plain: true})
			out.Encode(event{Result: &r})
		}
	}
}
