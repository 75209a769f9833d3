package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/models"
	"github.com/rs/zerolog"
)

// fakeMemoryBytes is the largest query the fake has memory for.
const fakeMemoryBytes = 32 << 20

// fake is a Backend whose services add and subtract ("simple") or return what
// they get (the others). It answers within Submit unless hold is set.
type fake struct {
	t        testing.TB
	services []*query.Service
	timeline *timeline.Ring
	dead     atomic.Bool
	unready  atomic.Bool
	hold     atomic.Bool            // submitted calls wait for an answer
	refuse   atomic.Pointer[error]  // what Submit fails with
	output   atomic.Pointer[[]byte] // what every output holds instead

	mu struct {
		sync.Mutex
		held      []*query.Call
		out       int // pieces of memory that are out
		cancelled int
		released  int
		last      query.Call // the call submitted last, tensors copied
		largest   int64
	}
}

func dims(values ...int64) []models.Dim {
	d := make([]models.Dim, len(values))
	for i, v := range values {
		d[i].Value = v
		if v < -1 {
			d[i] = models.Dim{Value: -1, Name: fmt.Sprintf("n%d", -v)}
		}
	}
	return d
}

func spec(name string, t models.DataType, shape ...int64) models.TensorSpec {
	return models.TensorSpec{Name: name, Type: models.Tensor(t, dims(shape...)...)}
}

var elementTypes = []models.DataType{
	models.Float32, models.Float64, models.Float16, models.BFloat16, models.Bool, models.String,
	models.Int8, models.Int16, models.Int32, models.Int64,
	models.Uint8, models.Uint16, models.Uint32, models.Uint64,
}

func newFake(t testing.TB) *fake {
	f := &fake{t: t}
	add := func(name string, info query.Info) *query.Service {
		c := config.DefaultService()
		c.Name, c.MaxQueryBatch = name, 8
		s := newService(models.ServiceID(len(f.services)), &c, "edf", f)
		info.Platform, info.Device, info.Operators, info.Hash = "onnxruntime_onnx", "cpu", 2, "abc123"
		if len(info.Inputs) > 0 {
			if err := s.Loaded(info); err != nil {
				t.Fatal(err)
			}
			s.SetReady(true)
		}
		f.services = append(f.services, s)
		return s
	}
	add("simple", query.Info{
		Inputs:  []models.TensorSpec{spec("INPUT0", models.Int32, -1, 16), spec("INPUT1", models.Int32, -1, 16)},
		Outputs: []models.TensorSpec{spec("OUTPUT0", models.Int32, -1, 16), spec("OUTPUT1", models.Int32, -1, 16)},
	})
	for _, e := range elementTypes {
		add("echo_"+e.Protocol(), query.Info{
			Inputs:  []models.TensorSpec{spec("X", e, -1, -1)},
			Outputs: []models.TensorSpec{spec("Y", e, -1, -1)},
		})
	}
	add("linked", query.Info{
		Inputs:  []models.TensorSpec{spec("A", models.Int64, -2, -3), spec("B", models.Int64, -2, -3), spec("C", models.Float32, -2, 4)},
		Outputs: []models.TensorSpec{spec("A", models.Int64, -2, -3), spec("B", models.Int64, -2, -3), spec("C", models.Float32, -2, 4)},
	})
	add("unloaded", query.Info{})
	f.timeline = timeline.New(time.Now(), []models.Service{{Name: "simple", Operators: 2, QoSTarget: time.Second}})
	return f
}

func (f *fake) Services() []*query.Service { return f.services }

func (f *fake) Service(name []byte) *query.Service {
	for _, s := range f.services {
		if s.Name == string(name) {
			return s
		}
	}
	return nil
}

func (f *fake) Alloc(s *query.Service, n int64) (query.Memory, error) {
	if n > fakeMemoryBytes {
		return query.Memory{}, query.ErrTooLarge
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.out++
	f.mu.largest = max(f.mu.largest, n)
	return query.Memory{Bytes: make([]byte, n), Offset: 128}, nil
}

func (f *fake) Free(*query.Service, query.Memory) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.out--
}

func (f *fake) Submit(c *query.Call) error {
	if err := f.refuse.Load(); err != nil {
		return *err
	}
	f.check(c)
	f.mu.Lock()
	f.mu.last = query.Call{Service: c.Service, ID: bytes.Clone(c.ID), Size: c.Size, SeqLen: c.SeqLen, Shape: c.Shape,
		Timeout: c.Timeout, Priority: c.Priority}
	for _, in := range c.Inputs {
		in.Data = bytes.Clone(in.Data)
		f.mu.last.Inputs = append(f.mu.last.Inputs, in)
	}
	if f.hold.Load() {
		f.mu.held = append(f.mu.held, c)
		f.mu.Unlock()
		return nil
	}
	f.mu.Unlock()
	c.Answer(f.run(c))
	return nil
}

// check holds what every call promises.
func (f *fake) check(c *query.Call) {
	for _, in := range c.Inputs {
		elements := int64(1)
		for _, d := range in.Shape {
			elements *= d
		}
		if size := int64(in.Type.Bytes()); size > 0 && int64(len(in.Data)) != elements*size {
			f.t.Errorf("input %s: %d bytes for shape %v of %v", in.Name, len(in.Data), in.Shape, in.Type)
		}
		if in.Offset%query.Alignment != 0 {
			f.t.Errorf("input %s is not aligned: %d", in.Name, in.Offset)
		}
	}
}

func (f *fake) run(c *query.Call) query.Reply {
	r := query.Reply{Queue: 1, Compute: 3}
	c.Service.Stats.Executed()
	for _, in := range c.Inputs {
		r.Outputs = append(r.Outputs, query.Tensor{Name: in.Name, Type: in.Type, Shape: in.Shape, Data: in.Data})
	}
	if c.Service.Name == "simple" {
		sum, diff := make([]byte, len(c.Inputs[0].Data)), make([]byte, len(c.Inputs[0].Data))
		for i := 0; i < len(sum); i += 4 {
			a, b := binary.LittleEndian.Uint32(c.Inputs[0].Data[i:]), binary.LittleEndian.Uint32(c.Inputs[1].Data[i:])
			binary.LittleEndian.PutUint32(sum[i:], a+b)
			binary.LittleEndian.PutUint32(diff[i:], a-b)
		}
		r.Outputs[0].Data, r.Outputs[1].Data = sum, diff
	}
	if data := f.output.Load(); data != nil {
		for i := range r.Outputs {
			r.Outputs[i].Data = *data
		}
	}
	return r
}

// answerHeld answers the calls that wait.
func (f *fake) answerHeld(r func(*query.Call) query.Reply) {
	f.mu.Lock()
	held := f.mu.held
	f.mu.held = nil
	f.mu.Unlock()
	for _, c := range held {
		c.Answer(r(c))
	}
}

func (f *fake) waitHeld(n int) {
	f.t.Helper()
	eventually(f.t, "calls held", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.mu.held) == n
	})
}

func (f *fake) Cancel(c *query.Call) {
	f.mu.Lock()
	f.mu.cancelled++
	f.mu.Unlock()
}

func (f *fake) cancelled() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.cancelled
}

func (f *fake) Release(*query.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.out--
	f.mu.released++
}

func (f *fake) Status() (*status.Status, bool) {
	return &status.Status{Policy: "edf", Services: []status.Service{}}, !f.dead.Load()
}

func (f *fake) Timelines() []*timeline.Ring { return []*timeline.Ring{f.timeline} }

func (f *fake) Live() bool  { return !f.dead.Load() }
func (f *fake) Ready() bool { return !f.unready.Load() }

// eventually waits for what happens in another goroutine or in the kernel.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("still waiting: %s", what)
}

// server is an endpoint on a socket with a fake behind it.
type server struct {
	*fake
	t        testing.TB
	endpoint *Endpoint
	addr     net.Addr
}

func testLimits() config.Limits {
	l := config.Default().Limits
	l.IdleTimeout = 20 * time.Second
	return l
}

func serve(t testing.TB, l config.Limits) *server { return serveAt(t, l, "127.0.0.1:0") }

func serveAt(t testing.TB, l config.Limits, address string) *server {
	t.Helper()
	f := newFake(t)
	e, err := NewEndpoint(f, l, "test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	ln, err := Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{fake: f, t: t, endpoint: e, addr: ln.Addr()}
	served := make(chan error, 1)
	go func() { served <- e.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		e.Shutdown(ctx)
		ln.Close() // if Serve had not begun, Shutdown found nothing to close
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		s.settle()
	})
	return s
}

// settle fails the test if any memory of a query or a request is still out.
func (s *server) settle() {
	s.t.Helper()
	eventually(s.t, "memory to come back", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.mu.out == 0 && s.endpoint.memoryBytes.Load() == 0
	})
}

// watched returns how many connections are open.
func (s *server) watched() int {
	w := s.endpoint.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.conns)
}

func dialOnce(s *server) (net.Conn, error) { return net.Dial(s.addr.Network(), s.addr.String()) }

func (s *server) dial() net.Conn {
	s.t.Helper()
	c, err := dialOnce(s)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

// reply is an answer as a client sees it.
type answered struct {
	status int
	header http.Header
	body   []byte
}

// failure returns the error that the answer is, or fails the test.
func (a answered) failure(t testing.TB) (message, reason string) {
	t.Helper()
	var e struct{ Error, Reason string }
	if err := json.Unmarshal(a.body, &e); err != nil || e.Error == "" || e.Reason == "" {
		t.Fatalf("status %d: the body is no error: %q", a.status, a.body)
	}
	if got := a.header.Get("Content-Type"); got != contentJSON {
		t.Errorf("an error of type %q", got)
	}
	return e.Error, e.Reason
}

// exchange sends raw bytes and reads one answer.
func (s *server) exchange(raw []byte) answered {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	go c.Write(raw)
	return s.read(c)
}

func (s *server) read(c net.Conn) answered {
	s.t.Helper()
	a, err := readAnswer(bufio.NewReader(c))
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func readAnswer(r *bufio.Reader) (answered, error) {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return answered{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answered{resp.StatusCode, resp.Header, b}, err
}

// request returns the bytes of a request.
func rawRequest(method, path string, header map[string]string, body []byte) []byte {
	b := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, path)
	for k, v := range header {
		b = fmt.Appendf(b, "%s: %s\r\n", k, v)
	}
	if body != nil && header["Transfer-Encoding"] == "" {
		b = fmt.Appendf(b, "Content-Length: %d\r\n", len(body))
	}
	return append(append(b, "\r\n"...), body...)
}

func (s *server) get(path string) answered {
	s.t.Helper()
	return s.exchange(rawRequest("GET", path, nil, nil))
}

func (s *server) infer(service, body string) answered {
	s.t.Helper()
	return s.exchange(rawRequest("POST", "/v2/models/"+service+"/infer", nil, []byte(body)))
}

// live fails the test if the daemon does not answer any more.
func (s *server) live() {
	s.t.Helper()
	if a := s.get("/v2/health/live"); a.status != http.StatusOK {
		s.t.Fatalf("health/live answers %d %s", a.status, a.body)
	}
}
