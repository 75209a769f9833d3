// Package fakemps is NVIDIA's MPS as a test sees it, without a GPU: a control
// program that is daemon and console in one, servers, and clients.
//
// A test binary that calls [Take] first thing in TestMain is the control
// program when it is started under that name, and [Install] makes the name.
// The fake binds a SOCK_SEQPACKET socket "control" in the pipe directory, as
// the real one does; what goes through it is the fake's own. Console, log
// lines and messages are as NVIDIA documents them or as logs in public show
// them. What a daemon does wrong is told it by [Behave].
package fakemps

import (
	"bufio"
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Program is the name under which the control program is started.
const Program = "nvidia-cuda-mps-control"

// Take makes this process the control program and exits, if it was started under
// the name of that: the daemon with -f, else the console.
func Take() {
	if filepath.Base(os.Args[0]) != Program {
		return
	}
	pipe := cmp.Or(os.Getenv("CUDA_MPS_PIPE_DIRECTORY"), "/tmp/nvidia-mps")
	run := console
	if slices.Contains(os.Args[1:], "-f") {
		run = runDaemon
	}
	if err := run(pipe); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Install makes the control program in a directory, as a name of the running
// binary, and returns its path.
func Install(directory string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(directory, Program)
	return path, os.Symlink(self, path)
}

// Behave tells the daemons of one pipe directory to misbehave, now and in
// their later lives. Each line is a verb and what it is about:
//
//	await FILE       get ready when the file exists
//	never            never get ready
//	exit MESSAGE     print the message and exit at the start
//	hang COMMAND     do not answer the command
//	garbage COMMAND  answer it with garbage
//	huge COMMAND     answer it without end
//	stay             ignore quit
//	orphan           have servers that outlive the daemon
//	slow             have servers that stay INITIALIZING
//
// No line at all makes them behave.
func Behave(pipe string, lines ...string) error {
	path := behaviourFile(pipe)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func behaviourFile(pipe string) string { return filepath.Join(filepath.Dir(pipe), "fake") }

func told(pipe, verb string) (about string, ok bool) {
	text, err := os.ReadFile(behaviourFile(pipe))
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(text)) {
		if first, rest, _ := strings.Cut(strings.TrimSpace(line), " "); first == verb {
			return rest, true
		}
	}
	return "", false
}

// network is SOCK_SEQPACKET, as the real control socket is.
const network = "unixpacket"

// packet is the largest message, in bytes.
const packet = 4 << 10

func controlSocket(pipe string) string { return filepath.Join(pipe, "control") }

// console sends the lines of standard input, and prints the answers.
func console(pipe string) error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == "" {
			continue
		}
		conn, err := send(pipe, lines.Text())
		if err != nil {
			fmt.Println("Cannot find MPS control daemon process")
			return err
		}
		for buf := make([]byte, packet); ; {
			n, err := conn.Read(buf)
			if n == 0 || err != nil {
				break
			}
			os.Stdout.Write(buf[:n])
		}
		conn.Close()
	}
	return nil
}

// send sends one command and returns the connection that the answer comes by.
func send(pipe, command string) (net.Conn, error) {
	conn, err := net.Dial(network, controlSocket(pipe))
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte(command)); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
