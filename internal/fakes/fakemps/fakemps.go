// Package fakemps imitates NVIDIA's MPS for tests, without a GPU: a control program that is
// both daemon and console, servers, and clients.
//
// A test binary calls [Take] at the beginning of TestMain. If the binary was started under
// the name of the control program, which [Install] creates, Take acts as that program. The
// fake binds a SOCK_SEQPACKET socket "control" in the pipe directory, like the real one; the
// messages on it are the fake's own. Console output and log lines follow NVIDIA's
// documentation and published logs. [Behave] makes a daemon misbehave.
package fakemps

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Program is the name under which the control program is started.
const Program = "nvidia-cuda-mps-control"

// Take acts as the control program and exits, if this process was started under its name:
// as the daemon with -f, else as the console.
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

// Install creates the control program in a directory, as a link to the running binary, and
// returns its path.
func Install(directory string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(directory, Program)
	return path, os.Symlink(self, path)
}

// Behave makes the current and later daemons of one pipe directory misbehave. Each line is
// a verb and its argument:
//
//	never            never become ready
//	exit MESSAGE     print the message and exit at the start
//	hang COMMAND     do not answer the command
//	garbage COMMAND  answer it with garbage
//	huge COMMAND     answer it without end
//	refuse FILE      refuse commands while the file is there
//	stay             ignore quit
//	orphan           start servers that outlive the daemon
//	slow             start servers that stay INITIALIZING
//
// Without lines they behave.
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

// told returns the argument of a verb that Behave was called with.
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

// network is SOCK_SEQPACKET, like the real control socket.
const network = "unixpacket"

// packet limits a message, in bytes.
const packet = 4 << 10

func controlSocket(pipe string) string { return filepath.Join(pipe, "control") }

// console sends the lines of standard input and prints the answers.
func console(pipe string) error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == "" {
			continue
		}
		if file, ok := told(pipe, "refuse"); ok {
			if _, err := os.Stat(file); err == nil {
				fmt.Println("Cannot send command to MPS control daemon process")
				return errors.New("refused")
			}
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
