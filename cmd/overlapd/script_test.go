package main

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/internal/cli/clitest"
	"github.com/overlapd/overlapd/internal/fakes/fakeca"
)

// serveTimeout bounds how long a daemon of a script may take to be ready.
const serveTimeout = time.Minute

// serveProbe is how often a script looks whether its daemon is ready.
const serveProbe = 50 * time.Millisecond

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process that the race detector watches takes a second to end
	if os.Getenv("OVERLAPD_TEST_FIT") != "" || len(os.Args) > 1 && (os.Args[1] == "check-state" || os.Args[1] == "models") {
		main() // a test started its own binary as overlapd
		return
	}
	testscript.Main(m, map[string]func(){"overlapd": main})
}

// TestScripts runs shell sessions. Besides those of [clitest.Scripts] they have the commands
//
//	serving LOG           waits until the daemon that logs there is ready; sets $URL and $SECURE_URL
//	authority             makes an authority, ca.pem, and pairs of it: server.pem, server.key, client.pem, client.key
//	stop-daemon           tells the daemon in the background to stop
func TestScripts(t *testing.T) {
	clitest.Scripts(t, clitest.Commands{"serving": servingCommand, "authority": authorityCommand, "stop-daemon": stopDaemonCommand})
}

// servingCommand reads the log of a daemon, in JSON, until it says that all
// services are ready.
func servingCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serving LOG")
	}
	var log []byte
	for deadline := time.Now().Add(serveTimeout); time.Now().Before(deadline); time.Sleep(serveProbe) {
		log, _ = os.ReadFile(ts.MkAbs(args[0])) // it may not be there yet
		address := ""
		for line := range bytes.Lines(log) {
			var entry struct{ Message, Address string }
			if json.Unmarshal(line, &entry) != nil {
				continue
			}
			switch entry.Message {
			case "listening":
				address = entry.Address
			case "all services are ready":
				ts.Setenv("URL", "http://"+address)
				ts.Setenv("SECURE_URL", "https://"+address)
				return
			}
		}
	}
	ts.Fatalf("the daemon is not ready after %v:\n%s", serveTimeout, log)
}

// authorityCommand makes certificates where the script stands.
func authorityCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: authority")
	}
	ca := fakeca.New(ts.MkAbs("."))
	ca.Pair("server", 30*24*time.Hour)
	ca.Pair("client", 30*24*time.Hour)
}

// stopDaemonCommand sends SIGTERM, which testscript's kill does not know, to
// the one process in the background.
func stopDaemonCommand(ts *testscript.TestScript, neg bool, args []string) {
	running := ts.BackgroundCmds()
	if neg || len(args) != 0 || len(running) != 1 {
		ts.Fatalf("usage: stop-daemon, with one process in the background")
	}
	ts.Check(running[0].Process.Signal(unix.SIGTERM))
}
