package fakemps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Take()
	// Else each process that the race detector watches takes a second to end.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

const patience = 20 * time.Second

// daemonOf runs a daemon and returns its pipe directory and program.
func daemonOf(t *testing.T, behaviour ...string) (pipe, program string) {
	t.Helper()
	directory, err := os.MkdirTemp("", "fake")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	if program, err = Install(directory); err != nil {
		t.Fatal(err)
	}
	pipe = filepath.Join(directory, "pipe")
	if err := Behave(pipe, behaviour...); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-f")
	cmd.Env = append(os.Environ(), "CUDA_MPS_PIPE_DIRECTORY="+pipe, "CUDA_MPS_LOG_DIRECTORY="+directory)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		say(t, pipe, program, "quit")
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if conn, err := send(pipe, "get_server_list"); err == nil {
			conn.Close()
			return pipe, program
		}
		if time.Now().After(deadline) {
			t.Fatal("the daemon does not get ready")
		}
	}
}

// say sends commands by hand, as a person does.
func say(t *testing.T, pipe, program, commands string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), "CUDA_MPS_PIPE_DIRECTORY="+pipe)
	cmd.Stdin = strings.NewReader(commands)
	out, _ := cmd.CombinedOutput()
	return string(out)
}

func TestByHand(t *testing.T) {
	pipe, program := daemonOf(t)
	if got := say(t, pipe, program, "get_server_list\n\nget_client_list 1\n"); got != "Server not found\n" {
		t.Errorf("%q", got)
	}
	if got := say(t, pipe, program, "dance"); got != "Server not found\n" {
		t.Errorf("%q", got)
	}
	server := strings.TrimSpace(say(t, pipe, program, "start_server -uid 0\nget_server_list"))
	if got := say(t, pipe, program, "get_server_status "+server+"\nget_client_list "+server); got != "ACTIVE\n" {
		t.Errorf("%q", got)
	}
	if got := say(t, filepath.Dir(pipe), program, "get_server_list"); !strings.HasPrefix(got, "Cannot find MPS control daemon process\n") {
		t.Errorf("%q", got)
	}
}

func TestClient(t *testing.T) {
	pipe, program := daemonOf(t)
	c, err := Connect(pipe)
	if err != nil {
		t.Fatal(err)
	}
	if err := Fault(pipe, c.Server); err != nil {
		t.Error(err)
	}
	if _, err := Connect(pipe); !errors.Is(err, ErrNotReady) {
		t.Error(err)
	}
	if got := say(t, pipe, program, fmt.Sprint("get_client_list ", c.Server)); got != fmt.Sprintln(os.Getpid()) {
		t.Errorf("%q", got)
	}
	select {
	case <-c.Lost():
		t.Error("lost while the server lives")
	default:
	}
	c.Close()
	if _, err := Connect(filepath.Dir(pipe)); err == nil {
		t.Error("connected to nobody")
	}
}

func TestTold(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if _, ok := told(pipe, "stay"); ok {
		t.Error("told by nobody")
	}
	if err := Behave(pipe, "stay", "exit a  b"); err != nil {
		t.Fatal(err)
	}
	if about, ok := told(pipe, "exit"); !ok || about != "a  b" {
		t.Errorf("%q, %v", about, ok)
	}
	if _, ok := told(pipe, "hang"); ok {
		t.Error("not told to hang")
	}
}
