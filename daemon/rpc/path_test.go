package rpc

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/access"
)

// Frames of HTTP/2 (RFC 9113, section 6).
const (
	frameData     = 0
	frameHeaders  = 1
	frameReset    = 3
	frameSettings = 4
	frameGoAway   = 7

	flagEndStream  = 0x1
	flagEndHeaders = 0x4
)

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// fieldsOf encodes header fields, each as it is (RFC 7541, section 6.2.2).
func fieldsOf(pairs ...string) (b []byte) {
	for i, s := range pairs {
		if i%2 == 0 {
			b = append(b, 0)
		}
		b = append(append(b, byte(len(s))), s...)
	}
	return b
}

// answered reports whether a server sends anything but an error for a path.
// gRPC's own clients send no other paths than those that there are.
func answered(t *testing.T, r *rig, path string) bool {
	t.Helper()
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	headers := fieldsOf(":method", "POST", ":scheme", "http", ":path", path, ":authority", "localhost", "content-type", "application/grpc", "te", "trailers")
	raw := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(frameSettings, 0, 0, nil)...)
	raw = append(raw, frame(frameHeaders, flagEndHeaders, 1, headers)...)
	raw = append(raw, frame(frameData, flagEndStream, 1, make([]byte, headBytes))...)
	if _, err := c.Write(raw); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	for {
		var head [9]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return false // the connection is closed
		}
		if _, err := io.CopyN(io.Discard, in, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
			return false
		}
		switch stream := binary.BigEndian.Uint32(head[5:]); {
		case head[3] == frameGoAway || head[3] == frameReset:
			return false
		case stream == 1 && head[3] == frameData:
			return true
		case stream == 1 && head[3] == frameHeaders && head[4]&flagEndStream != 0:
			return false // it has a status, and no message
		}
	}
}

// However the path of a method is written, it does not bypass the token. Without the
// leading slash, gRPC once resolved it to another method than its interceptors saw
// (CVE-2026-33186).
func TestOddPathsWantAToken(t *testing.T) {
	const live, metadata = "inference.GRPCInferenceService/ServerLive", "inference.GRPCInferenceService/ServerMetadata"
	r := startGuarded(t, &fake{}, testLimits(), guarded(t, access.Options{}), nil)
	if !answered(t, r, "/"+live) {
		t.Fatal("what needs no token is not answered")
	}
	for _, path := range []string{
		"/" + metadata, metadata, "//" + metadata, "/" + metadata + "/", "/%69nference.GRPCInferenceService/ServerMetadata",
		"/" + live + "/../ServerMetadata", "/" + live + "?" + metadata, "/" + live + "%00/" + metadata, "http://localhost/" + metadata, "*", "", "/",
	} {
		if answered(t, r, path) {
			t.Errorf("%q is answered without a token", path)
		}
	}
	open := start(t, &fake{}, testLimits())
	if !answered(t, open, "/"+metadata) {
		t.Error("nobody is answered where no token is needed")
	}
}
