package rpc

import (
	"bytes"
	stdgzip "compress/gzip"
	"encoding/binary"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// unread begins calls whose answers nobody reads beyond the smallest window.
func unread(t *testing.T, r *rig, method string, calls int, q []byte, encoding string) {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}}
	tr.Protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: tr}
	t.Cleanup(tr.CloseIdleConnections)
	for range calls {
		req, err := http.NewRequestWithContext(r.context(), http.MethodPost, "http://"+r.address+method, bytes.NewReader(q))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		if encoding != "" {
			req.Header.Set("Grpc-Encoding", encoding)
			req.Header.Set("Grpc-Accept-Encoding", encoding)
		}
		go func() {
			if a, err := client.Do(req); err == nil {
				t.Cleanup(func() { a.Body.Close() })
			}
		}()
	}
}

func framed(flag byte, b []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(b))), b...)
}

// Answers that a client does not read are accounted, and cost it the connection.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	const bytes = 512 << 10
	raw := encode(t, rawRequest(bytes))
	for name, c := range map[string]struct {
		method, encoding string
		q                []byte
	}{
		"calls":      {inference.GRPCInferenceService_ModelInfer_FullMethodName, "", framed(0, raw)},
		"compressed": {inference.GRPCInferenceService_ModelInfer_FullMethodName, "gzip", framed(1, zipped(t, raw))},
		"streams":    {inference.GRPCInferenceService_ModelStreamInfer_FullMethodName, "", framed(0, raw)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := testLimits()
			l.MemoryBytes = 64 << 20
			f := &fake{}
			r := start(t, f, l)
			const calls = 8
			unread(t, r, c.method, calls, c.q, c.encoding)
			eventually(t, "the answers to be accounted", func() bool {
				_, _, all := f.counts()
				return all == calls && r.server.queries.Memory.Used() >= calls*bytes
			})
		})
		t.Run(name+" in time", func(t *testing.T) {
			t.Parallel()
			l := testLimits()
			l.MemoryBytes, l.WriteTimeout = 64<<20, 50*time.Millisecond
			r := start(t, &fake{}, l)
			unread(t, r, c.method, 8, c.q, c.encoding)
			eventually(t, "a query to be answered", func() bool { _, _, all := r.counts(); return all > 0 })
			eventually(t, "the connection to be closed", func() bool { return r.server.queries.Connections.Used() == 0 })
			eventually(t, "the memory to be given back", func() bool { return r.server.queries.Memory.Used() == 0 })
		})
	}
}

// There is memory for an answer before it is written, or there is no answer: however
// many a client leaves unread, no more is taken than there is.
func TestAnswersAreReserved(t *testing.T) {
	t.Parallel()
	small := framed(0, encode(t, rawRequest(8)))
	for name, method := range map[string]string{
		"calls": inference.GRPCInferenceService_ModelInfer_FullMethodName, "streams": inference.GRPCInferenceService_ModelStreamInfer_FullMethodName,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := testLimits()
			l.MemoryBytes, l.Connections = 16<<20, 64
			f := &fake{}
			r := start(t, f, l)
			memory := r.server.queries.Memory
			f.setAnswer(make([]byte, 1<<20))
			for range 3 { // together 24 MB
				unread(t, r, method, 8, small, "")
			}
			eventually(t, "the memory to be used up", func() bool { return memory.Used() > l.MemoryBytes-5<<20 })
			for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if used := memory.Used(); used > l.MemoryBytes {
					t.Fatalf("%d bytes are in use, of %d", used, l.MemoryBytes)
				}
			}
		})
	}
}

// An answer that there is never memory for says so; one that there is no memory for
// now is worth another try. Neither ends a stream.
func TestAnswersWithoutMemory(t *testing.T) {
	t.Parallel()
	l := testLimits()
	l.MemoryBytes = 4 << 20
	f := &fake{}
	r := start(t, f, l)
	f.setAnswer(make([]byte, 8<<20))
	_, err := r.client.ModelInfer(r.context(), rawRequest(8))
	wants(t, "too large", err, codes.ResourceExhausted, "limits.memory_bytes")
	s := r.stream(r.context())
	send(t, s, rawRequest(8))
	if a, err := s.Recv(); err != nil || !strings.Contains(a.ErrorMessage, "limits.memory_bytes") {
		t.Errorf("stream: %v, %v", a, err)
	}
	f.setAnswer(make([]byte, 4<<20-64))
	_, err = r.client.ModelInfer(r.context(), rawRequest(8))
	wants(t, "no memory now", err, codes.Unavailable, "all memory for requests and answers")
	f.setAnswer(nil)
	send(t, s, rawRequest(8))
	if a, err := s.Recv(); err != nil || a.ErrorMessage != "" {
		t.Errorf("stream: %v, %v", a, err)
	}
	s.CloseSend()
}

func zipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := stdgzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return out.Bytes()
}
