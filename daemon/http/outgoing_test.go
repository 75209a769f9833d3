package http

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
)

// manyBytes are more than the buffers of a connection take.
const manyBytes = 8 << 20

// plenty lets every output of the fake be so long.
func (s *server) plenty(n int) {
	data := make([]byte, n)
	s.Output.Store(&data)
}

var binaryAnswer = rawRequest("POST", "/v2/models/echo_UINT8/infer", nil,
	[]byte(`{"parameters":{"binary_data_output":true},"inputs":[{"name":"X","datatype":"UINT8","shape":[1,2],"data":[1,2]}]}`))

// unread asks and does not read.
func (s *server) unread(raw []byte) net.Conn {
	c := s.dial()
	c.(*net.TCPConn).SetReadBuffer(4 << 10)
	c.Write(raw)
	return c
}

// Answers that clients do not read have no more memory than requests.
func TestAnswersAreAccounted(t *testing.T) {
	l := testLimits()
	l.RequestBytes, l.MemoryBytes = 1<<20, 20<<20
	s := serve(t, l)
	s.plenty(manyBytes)
	slow := []net.Conn{s.unread(binaryAnswer), s.unread(binaryAnswer)}
	eventually(t, "two answers to be under way", func() bool { return s.endpoint.bodies.memory.Used() >= 2*manyBytes })
	a := s.exchange(binaryAnswer)
	if _, reason := a.failure(t); a.status != http.StatusServiceUnavailable || reason != query.ReasonNoMemory || a.header.Get("Retry-After") != "1" {
		t.Errorf("a third answer: %d %.100s", a.status, a.body)
	}
	s.plenty(2)
	if a := s.exchange(binaryAnswer); a.status != http.StatusOK {
		t.Errorf("a short answer: %d %.100s", a.status, a.body)
	}
	for _, c := range slow {
		c.Close()
	}
	s.settle()
	s.plenty(manyBytes)
	if a := s.exchange(binaryAnswer); a.status != http.StatusOK || len(a.body) < manyBytes {
		t.Errorf("afterwards: %d with %d bytes", a.status, len(a.body))
	}
}

// heap returns how much is in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // the pools forget what the first left
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A connection that rests does not keep its last answer.
func TestAnswersAreNotKept(t *testing.T) {
	s := serve(t, testLimits())
	s.plenty(manyBytes)
	before := heap()
	const resting = 8
	for range resting {
		c := s.sent(binaryAnswer)
		if a := s.read(c); a.status != http.StatusOK || len(a.body) < manyBytes {
			t.Fatalf("%d with %d bytes", a.status, len(a.body))
		}
	}
	if held := heap() - before; held > resting*manyBytes/4 {
		t.Errorf("%d MiB are held for %d connections that rest", held>>20, resting)
	}
}

// Answers arrive whole, whatever their length and however they are asked for.
func TestAnswersOfAllLengths(t *testing.T) {
	s := serve(t, testLimits())
	c := s.dial()
	r := bufio.NewReader(c)
	for _, n := range []int{1, smallAnswer - 200, smallAnswer, smallAnswer + 1, 1 << 20} {
		want := randomBytes(n)
		s.Output.Store(&want)
		for range 2 {
			c.Write(binaryAnswer)
			a, err := readAnswer(r)
			if err != nil || !bytes.HasSuffix(a.body, want) {
				t.Fatalf("%d bytes: %d, %d came, %v", n, a.status, len(a.body), err)
			}
		}
		text := rawRequest("POST", "/v2/models/echo_UINT8/infer", map[string]string{"Accept-Encoding": "gzip"},
			bytes.Replace(bytes.SplitN(binaryAnswer, []byte("\r\n\r\n"), 2)[1], []byte("true"), []byte("false"), 1))
		c.Write(text)
		if a, err := readAnswer(r); err != nil || a.status != http.StatusOK {
			t.Fatalf("%d numbers: %d, %v", n, a.status, err)
		}
	}
}

// What is told of the daemon is counted with all answers, and is there also if those
// have left no memory. It has a limit of its own.
func TestPagesAreAccounted(t *testing.T) {
	e := unserved(t, func(l *config.Limits) { l.RequestBytes, l.MemoryBytes = 1000, 1000 })
	for _, n := range []int64{0, 1, smallAnswer, smallAnswer + 1} {
		var ctx fasthttp.RequestCtx
		text := make([]byte, n)
		e.pages.writeText(&ctx, text)
		want := n
		if n <= smallAnswer {
			want = 0
		}
		if held := e.bodies.memory.Used(); held != want {
			t.Errorf("%d bytes: %d are held", n, held)
		}
		if got := ctx.Response.Body(); !bytes.Equal(got, text) {
			t.Errorf("%d bytes: %d came", n, len(got))
		}
		ctx.Response.Reset()
		if held := e.bodies.memory.Used(); held != 0 {
			t.Errorf("%d bytes: %d are held afterwards", n, held)
		}
	}
}

func TestPagesHaveTheirShare(t *testing.T) {
	e := unserved(t, nil)
	memory := e.bodies.memory
	memory.Force(memory.Limit())
	defer memory.Give(memory.Limit())
	var first, second, third fasthttp.RequestCtx
	e.pages.writeText(&first, make([]byte, pageBytes/2))
	e.pages.writeText(&second, make([]byte, pageBytes/2+1))
	if first.Response.StatusCode() != http.StatusOK || second.Response.StatusCode() != http.StatusServiceUnavailable {
		t.Errorf("pages within their limit are answered with %d, over it with %d", first.Response.StatusCode(), second.Response.StatusCode())
	}
	if held := memory.Used() - memory.Limit(); held != pageBytes/2 {
		t.Errorf("%d bytes are held", held)
	}
	e.pages.live(&third, nil)
	if third.Response.StatusCode() != http.StatusOK {
		t.Errorf("health: %d", third.Response.StatusCode())
	}
	first.Response.Reset()
}

// Without memory for compressing, an answer goes as it is.
func TestCompressionWithoutMemory(t *testing.T) {
	e := unserved(t, func(l *config.Limits) { l.RequestBytes, l.MemoryBytes = 150_000, 150_000 })
	for length, want := range map[int]string{70_000: "gzip", 80_000: ""} {
		var ctx fasthttp.RequestCtx
		ctx.Request.Header.Set("Accept-Encoding", "gzip")
		b, err := e.bodies.fill(e.bodies.memory, bytes.NewReader(make([]byte, length)), int64(length))
		if err != nil {
			t.Fatal(err)
		}
		e.bodies.send(&ctx, b)
		if got := string(ctx.Response.Header.ContentEncoding()); got != want {
			t.Errorf("%d bytes go as %q", length, got)
		}
		ctx.Response.Reset()
	}
}

// What would never fit is not to be tried again.
func TestAnswerTooLarge(t *testing.T) {
	l := testLimits()
	l.RequestBytes, l.MemoryBytes = 1<<20, 3<<20
	s := serve(t, l)
	s.plenty(1 << 20)
	if a := s.exchange(binaryAnswer); a.status != http.StatusOK {
		t.Errorf("as binary data: %d %.100s", a.status, a.body)
	}
	a := s.infer("echo_UINT8", echo("UINT8", "[1,2]", "[1,2]"))
	if _, reason := a.failure(t); a.status != http.StatusRequestEntityTooLarge || reason != query.ReasonTooLarge || a.header.Get("Retry-After") != "" {
		t.Errorf("as JSON: %d %.200s", a.status, a.body)
	}
	s.plenty(100 << 10)
	if a := s.infer("echo_UINT8", echo("UINT8", "[1,2]", "[1,2]")); a.status != http.StatusOK {
		t.Errorf("less, as JSON: %d %.100s", a.status, a.body)
	}
}

// An answer is given back if its client leaves while it is written.
func TestAnswerToNobody(t *testing.T) {
	s := serve(t, testLimits())
	s.plenty(manyBytes)
	for range 8 {
		c := s.unread(binaryAnswer)
		io.ReadFull(c, make([]byte, 100))
		c.Close()
	}
	s.settle()
	eventually(t, "the connections to end", func() bool { return s.watched() == 0 })
}

func TestReplyBytes(t *testing.T) {
	for _, typ := range []string{"FP32", "FP64", "INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "BOOL"} {
		s := newFake(t).Service([]byte("echo_" + typ))
		p := s.Signature().Outputs[0]
		for _, fill := range []byte{0, 1, 0x80, 0x7f, 0xaa, 0xfe} {
			data := bytes.Repeat([]byte{fill}, 64)
			text, ok := appendElements(nil, p.Type, data)
			if most := textBytes(p.Type, int64(len(data))); ok && int64(len(text)) > most {
				t.Errorf("%s of %#x: %d bytes, expected at most %d", typ, fill, len(text), most)
			}
		}
	}
	for _, element := range []string{"", "a", "\x01\x02\x03", `""`, "é"} {
		data := bytes.Repeat(bytesElement(element), 5)
		out, ok := appendTexts(nil, data)
		if most := textBytes(elementTypes[5], int64(len(data))); !ok || int64(len(out)) > most {
			t.Errorf("%q: %d bytes, expected at most %d", element, len(out), most)
		}
	}
}
