package fakemps

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// network is SOCK_SEQPACKET, as the real control socket is.
const network = "unixpacket"

// packet is the largest message, in bytes.
const packet = 4 << 10

func controlSocket(pipe string) string { return filepath.Join(pipe, "control") }

// console sends the lines of standard input, and prints the answers.
func console(pipe string) int {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if lines.Text() == "" {
			continue
		}
		if err := ask(pipe, lines.Text()); err != nil {
			fmt.Println("Cannot find MPS control daemon process")
			return 1
		}
	}
	return 0
}

// ask sends one command and prints what comes back.
func ask(pipe, command string) error {
	conn, err := net.Dial(network, controlSocket(pipe))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(command)); err != nil {
		return err
	}
	buf := make([]byte, packet)
	for {
		n, err := conn.Read(buf)
		if n == 0 || err != nil {
			return nil
		}
		if _, err := os.Stdout.Write(buf[:n]); err != nil {
			return nil
		}
	}
}
