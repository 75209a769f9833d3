package fakemps

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The names under which the programs are started.
const (
	Program       = "nvidia-cuda-mps-control"
	serverProgram = "nvidia-cuda-mps-server"
)

// Take runs the fake and exits if this process was started under the name of
// one of its programs.
func Take() {
	switch filepath.Base(os.Args[0]) {
	case Program, serverProgram:
		Main()
	}
}

// Main is the control program, or a server if it was started as one. It
// exits.
func Main() {
	pipe := os.Getenv("CUDA_MPS_PIPE_DIRECTORY")
	if pipe == "" {
		pipe = "/tmp/nvidia-mps"
	}
	if filepath.Base(os.Args[0]) == serverProgram {
		os.Exit(serve(pipe))
	}
	switch strings.Join(os.Args[1:], " ") {
	case "-f":
		os.Exit(runDaemon(pipe))
	case "":
		os.Exit(console(pipe))
	case "-v":
		fmt.Println("fake MPS control")
		os.Exit(0)
	}
	fmt.Fprintln(os.Stderr, "usage: "+Program+" [-f | -v]: without arguments, commands are read from standard input")
	os.Exit(2)
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
//	huge COMMAND     answer it with a megabyte
//	stay             ignore quit and SIGTERM
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

// told returns what a verb is about, if the daemon was told it.
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
