package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
)

// chatter is a collector of traces that says something after its answer, of which net/http
// writes a line to standard error.
func chatter(t *testing.T) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				request, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, request.Body)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nand another thing\r\n")
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	return ln.Addr().String()
}

// Whatever libraries write to standard error is a line of the log, in its format.
func TestEveryLineOfTheLogIsJSON(t *testing.T) {
	t.Parallel()
	p := serve(t, config{
		tables:   fmt.Sprintf("[tracing]\nendpoint = \"http://%s\"\nsample = 1.0", chatter(t)),
		services: []service{tinyAdd},
	})
	random := rand.New(rand.NewPCG(1, 2))
	p.eventually("a line of net/http", func() bool {
		if q := sum(random, 1); checkSum(q, p.infer(tinyAdd.name, q)) != nil {
			t.Fatal("a query was not answered")
		}
		return strings.Contains(p.logged(), "Unsolicited response")
	})
	p.stop()
	for line := range strings.Lines(p.logged()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}
