package load

import (
	"net"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

const benchConnections = 16

// BenchmarkConn and BenchmarkHostClient send the same request to the same
// trivial server in this process, so the difference is the client's.
func BenchmarkConn(b *testing.B) {
	s, wire := benchServer(b)
	u, _ := url.Parse(s.url)
	bench(b, func() (func() error, func()) {
		c := newConn(b.Context(), u.Host, nil)
		return func() error { return c.do(wire, time.Now().Add(10*time.Second)) }, c.close
	})
}

func BenchmarkHostClient(b *testing.B) {
	s, wire := benchServer(b)
	u, _ := url.Parse(s.url)
	hc := &fasthttp.HostClient{
		Addr:                u.Host,
		MaxConns:            benchConnections,
		MaxIdleConnDuration: 200 * time.Millisecond, // its goroutine outlives the last connection by this
		Dial:                func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) },
	}
	defer hc.CloseIdleConnections()
	body := wire[len(wire)-512:]
	bench(b, func() (func() error, func()) {
		req, resp := new(fasthttp.Request), new(fasthttp.Response)
		req.SetRequestURI(s.url + "/v2/models/a/infer")
		req.Header.SetMethod("POST")
		req.SetBodyRaw(body)
		return func() error { return hc.DoDeadline(req, resp, time.Now().Add(10*time.Second)) }, func() {}
	})
}

func benchServer(b *testing.B) (*server, []byte) {
	s := serve(b, answerOK)
	u, _ := url.Parse(s.url)
	return s, newWire(u, "/a", "", make([]byte, 512), 0)
}

func bench(b *testing.B, client func() (do func() error, stop func())) {
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	runtime.GC()
	before := cpuTime()
	b.ResetTimer()
	for range benchConnections {
		do, stop := client()
		wg.Go(func() {
			defer stop()
			for left.Add(-1) >= 0 {
				if err := do(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N), "cpu-us/req")
}
