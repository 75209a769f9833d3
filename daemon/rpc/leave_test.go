package rpc

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// Streams whose client leaves as soon as it has sent a request end, and hold
// nothing then, whether the request was read before that or not.
func TestStreamsThatLeave(t *testing.T) {
	r := start(t, &fake{}, testLimits())
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	raw := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(frameSettings, 0, 0, nil)...)
	headers := fieldsOf(":method", "POST", ":scheme", "http", ":path", inference.GRPCInferenceService_ModelStreamInfer_FullMethodName,
		":authority", "localhost", "content-type", "application/grpc", "te", "trailers")
	q := framed(0, encode(t, typedRequest("1")))
	const streams, cancel = 500, 8
	for i := range uint32(streams) {
		id := 2*i + 1
		raw = append(raw, frame(frameHeaders, flagEndHeaders, id, headers)...)
		raw = append(raw, frame(frameData, 0, id, q)...)
		raw = append(raw, frame(frameReset, 0, id, []byte{0, 0, 0, cancel})...)
	}
	go func() {
		_, _ = c.Write(raw)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	if _, err := io.Copy(io.Discard, c); err != nil { // to the end: the server has seen all of it
		t.Fatal(err)
	}
	eventually(t, "the memory of streams to be given back", func() bool {
		return r.server.queries.Connections.Used() == 0 && r.server.queries.Memory.Used() == 0
	})
}
