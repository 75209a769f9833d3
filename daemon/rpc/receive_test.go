package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// half is a call that has announced a message and sent a part of it.
type half struct {
	body   *io.PipeWriter
	status chan string // of gRPC
}

// halves speaks HTTP/2 itself: gRPC's client sends messages whole.
type halves struct {
	*rig
	client *http.Client
}

func newHalves(r *rig) *halves {
	t := &http.Transport{Protocols: new(http.Protocols)}
	t.Protocols.SetUnencryptedHTTP2(true)
	r.t.Cleanup(t.CloseIdleConnections)
	return &halves{r, &http.Client{Transport: t}}
}

// begin starts a call of a message of so many bytes, and sends some of them.
func (h *halves) begin(method string, announced, sent int) *half {
	h.t.Helper()
	read, write := io.Pipe()
	c := &half{body: write, status: make(chan string, 1)}
	q, err := http.NewRequestWithContext(h.context(), http.MethodPost, "http://"+h.address+method, read)
	if err != nil {
		h.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/grpc")
	q.Header.Set("Te", "trailers")
	go func() {
		a, err := h.client.Do(q)
		if err != nil {
			c.status <- err.Error()
			return
		}
		defer a.Body.Close()
		_, _ = io.Copy(io.Discard, a.Body)
		c.status <- a.Header.Get("Grpc-Status") + a.Trailer.Get("Grpc-Status")
	}()
	go func() {
		head := binary.BigEndian.AppendUint32([]byte{0}, uint32(announced))
		_, _ = write.Write(append(head, make([]byte, sent)...))
	}()
	h.t.Cleanup(func() { write.CloseWithError(errors.New("the test is over")) })
	return c
}

// Requests that are on their way hold no more than limits.memory_bytes, however
// many calls send them; those over it are refused while they come.
func TestHalfSentRequestsAreBounded(t *testing.T) {
	l := testLimits()
	l.MemoryBytes, l.RequestBytes, l.Connections = 8<<20, 4<<20, 64
	r := start(t, &fake{}, l)
	before := heap()
	const calls, sent = 96, 1 << 20
	var all []*half
	h := newHalves(r)
	for range calls {
		all = append(all, h.begin(inference.GRPCInferenceService_ModelInfer_FullMethodName, 4<<20, sent))
	}
	refused, most := 0, int64(0)
	for refused < calls-int(l.MemoryBytes/firstBytes) {
		for _, c := range all {
			select {
			case status := <-c.status:
				if status != "14" {
					t.Fatalf("a call over the limit ends with %q, want 14 (UNAVAILABLE)", status)
				}
				refused++
			case <-time.After(10 * time.Millisecond):
			}
			most = max(most, r.server.queries.Memory.Used())
		}
	}
	if most > l.MemoryBytes || r.server.queries.Memory.Used() == 0 {
		t.Errorf("%d bytes were accounted, the limit is %d", most, l.MemoryBytes)
	}
	if grew := heap() - before; grew > 4*l.MemoryBytes {
		t.Errorf("the heap grew by %d MiB for %d MiB that were sent", grew>>20, calls*sent>>20)
	}
	if err := r.call(r.context(), inference.GRPCInferenceService_ServerLive_FullMethodName); err != nil {
		t.Errorf("health, meanwhile: %v", err)
	}
	for _, c := range all {
		c.body.CloseWithError(errors.New("the client leaves"))
	}
	eventually(t, "the memory to be given back", func() bool { return r.server.queries.Memory.Used() == 0 })
	if _, err := r.client.ModelInfer(r.context(), typedRequest("1")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// heap returns the bytes that are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// Requests of the other calls are small, and calls without a token have memory
// of their own.
func TestControlCallsAreBounded(t *testing.T) {
	t.Parallel()
	r := startGuarded(t, &fake{}, testLimits(), guarded(t, access.Options{}), nil)
	h := newHalves(r)
	large := h.begin(inference.GRPCInferenceService_ServerLive_FullMethodName, controlBytes+1, 0)
	if got := <-large.status; got != "8" {
		t.Errorf("a large one ends with %q, want 8 (RESOURCE_EXHAUSTED)", got)
	}
	statuses := make(chan string, maxStreams)
	for range maxStreams {
		c := h.begin(inference.GRPCInferenceService_ServerLive_FullMethodName, controlBytes, controlBytes-1)
		go func() { statuses <- <-c.status }()
	}
	refused := 0
	for timeout := time.After(10 * time.Second); refused == 0; {
		select {
		case got := <-statuses:
			if refused++; got != "14" {
				t.Fatalf("a probe over the share of a connection ends with %q, want 14 (UNAVAILABLE)", got)
			}
		case <-timeout:
			t.Fatal("no probe of one connection is refused")
		}
	}
	if used, most := r.server.guard.probes.Used(), r.server.guard.probes.Limit(); refused == 0 || used > most/2 {
		t.Errorf("%d probes of one connection are refused, the others hold %d bytes of %d", refused, used, most)
	}
	if err := r.call(r.context(), inference.GRPCInferenceService_ServerLive_FullMethodName); err != nil {
		t.Errorf("a probe of another connection: %v", err)
	}
	if used := r.server.queries.Memory.Used(); used != 0 {
		t.Errorf("%d bytes of those who may ask", used)
	}
	if _, err := r.client.ModelInfer(with(r.context(), testToken), typedRequest("1")); err != nil {
		t.Errorf("a query, meanwhile: %v", err)
	}
}

// What a call brings is one request, whole and well compressed.
func TestArrivals(t *testing.T) {
	r := start(t, &fake{}, testLimits())
	q := encode(t, typedRequest("1"))
	frame := func(flag byte, b []byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(b))), b...)
	}
	h := newHalves(r)
	bomb := bytes.Repeat(zipped(t, make([]byte, 1<<20)), 64)
	for name, c := range map[string]struct {
		body     []byte
		encoding string
		want     string
	}{
		"one":             {frame(0, q), "", "0"},
		"none":            {nil, "", "3"},
		"two":             {append(frame(0, q), frame(0, q)...), "", "3"},
		"broken off":      {frame(0, q)[:20], "", "3"},
		"half a head":     {[]byte{0, 0}, "", "3"},
		"not compressed":  {frame(1, q), "gzip", "3"},
		"no encoding":     {frame(1, q), "", "3"},
		"unknown":         {frame(1, q), "zstd", "12"},
		"gzip bomb":       {frame(1, bomb), "gzip", "8"},
		"truncated":       {frame(1, bomb[:1000]), "gzip", "3"},
		"not a message":   {frame(0, []byte{0xff}), "", "3"},
		"announced: 4 GB": {[]byte{0, 0xff, 0xff, 0xff, 0xff}, "", "8"},
	} {
		req, err := http.NewRequestWithContext(r.context(), http.MethodPost, "http://"+r.address+inference.GRPCInferenceService_ModelInfer_FullMethodName, bytes.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		if c.encoding != "" {
			req.Header.Set("Grpc-Encoding", c.encoding)
		}
		a, err := h.client.Do(req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, _ = io.Copy(io.Discard, a.Body)
		a.Body.Close()
		if got := a.Header.Get("Grpc-Status") + a.Trailer.Get("Grpc-Status"); got != c.want {
			t.Errorf("%s: %s, want %s: %s", name, got, c.want, a.Header.Get("Grpc-Message")+a.Trailer.Get("Grpc-Message"))
		}
	}
	if _, _, all := r.counts(); all != 1 {
		t.Errorf("the host got %d of them", all)
	}
}

// A large request is not held up by the windows.
func TestLargeRequest(t *testing.T) {
	l := testLimits()
	l.RequestBytes, l.MemoryBytes = 64<<20, 512<<20
	r := start(t, &fake{}, l)
	ctx, cancel := context.WithTimeout(r.context(), patience)
	defer cancel()
	if _, err := r.client.ModelInfer(ctx, rawRequest(40<<20), grpc.MaxCallRecvMsgSize(64<<20)); err != nil {
		t.Error(err)
	}
	if _, err := r.client.ModelInfer(ctx, rawRequest(64<<20)); err == nil {
		t.Error("one over the limit is taken")
	} else {
		wants(t, "over the limit", err, codes.ResourceExhausted, "larger than max")
	}
}

// A client that asks too often whether the server is there is sent away.
func TestTooManyPings(t *testing.T) {
	t.Parallel()
	r := start(t, &fake{}, testLimits())
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	begin := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	ping := "\x00\x00\x08\x06\x00\x00\x00\x00\x00" + "12345678"
	if _, err := io.WriteString(c, begin+strings.Repeat(ping, 8)); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(c)
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		t.Fatal("the connection is still open")
	}
	const goAway, calm = 7, 11 // frame and code of HTTP/2
	for b := said; len(b) >= 9; {
		n := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if len(b) < 9+n {
			break
		}
		if b[3] == goAway && n >= 8 && binary.BigEndian.Uint32(b[13:]) == calm && strings.Contains(string(b[17:9+n]), "too_many_pings") {
			return
		}
		b = b[9+n:]
	}
	t.Errorf("it is not told to calm down: %q", said)
}
