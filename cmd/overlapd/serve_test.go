package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestServeTellsSystemd takes systemd's place: it listens where the daemon
// tells how it does, and wants signs of life.
func TestServeTellsSystemd(t *testing.T) {
	dir := t.TempDir()
	address := filepath.Join(dir, "notify")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var log bytes.Buffer
	daemon := exec.Command(os.Args[0], "serve", "--config", filepath.Join("..", "..", "docs", "examples", "emulated.toml"), "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0")
	daemon.Env = append(os.Environ(), "OVERLAPD_TEST_FIT=1", "STATE_DIRECTORY="+dir, "NOTIFY_SOCKET="+address, "WATCHDOG_USEC=3000000")
	daemon.Stderr = &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	defer func() { _ = daemon.Process.Kill() }()

	hear := func(want string) {
		t.Helper()
		if err := listener.SetReadDeadline(time.Now().Add(serveTimeout)); err != nil {
			t.Fatal(err)
		}
		message := make([]byte, 4096)
		for {
			n, err := listener.Read(message)
			if err != nil {
				t.Fatalf("waiting for %s: %v", want, err)
			}
			if slices.Contains(strings.Split(string(message[:n]), "\n"), want) {
				return
			}
		}
	}
	hear("STATUS=opening the state and the models")
	hear("READY=1")
	hear("WATCHDOG=1")
	if err := daemon.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hear("STOPPING=1")
	if err := <-ended; err != nil {
		t.Errorf("the daemon ended with %v\n%s", err, &log)
	}
}
