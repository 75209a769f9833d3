package fakemps

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

func serverSocket(pipe string, pid int) string {
	return filepath.Join(pipe, "server."+strconv.Itoa(pid))
}

// serve holds the clients' connections until its leash ends.
func serve(pipe string) int {
	path := serverSocket(pipe, os.Getpid())
	listener, err := net.Listen(network, path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer listener.Close()
	os.Stdout.Write([]byte{1}) // ready
	os.Stdout.Close()
	go func() {
		var held []net.Conn // a connection that is not kept is closed
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			held = append(held, conn)
		}
	}()
	if onLeash() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	}
	select {}
}

// onLeash reports whether standard input is the daemon's.
func onLeash() bool {
	info, err := os.Stdin.Stat()
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}
