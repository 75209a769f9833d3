package http

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/text"
	"github.com/overlapd/overlapd/models"
)

// reuse gives every query the same memory, so that what is counted is the
// endpoint's.
type reuse struct {
	*fake
	memory  []byte
	outputs []models.Tensor
}

func (r *reuse) Alloc(*query.Service, int64) (query.Memory, error) {
	return query.Memory{Bytes: r.memory}, nil
}
func (r *reuse) Free(*query.Service, query.Memory) {}
func (r *reuse) Release(*query.Call)               {}

func (r *reuse) Submit(c *query.Call) error {
	r.outputs = append(r.outputs[:0], c.Inputs...)
	reply := query.Reply{Outputs: r.outputs}
	if c.Variant >= 0 {
		reply.Variant = c.Service.Variants[c.Variant].Name
	}
	c.Answer(reply)
	return nil
}

// handling returns a function that handles one request of "simple", without a
// socket.
func handling(t testing.TB, body string, header map[string]string) func() {
	t.Helper()
	r := &reuse{fake: newFake(t), memory: make([]byte, 1<<20)}
	for _, s := range r.List {
		s.Backend = r
	}
	if strings.Contains(body, query.ParameterVariant) {
		r.List[0].Variants = []query.Variant{{Name: "fast", Accuracy: 76.13}, {Name: "best", Accuracy: 78.31}}
	}
	l := testLimits()
	q := queriesOf(r, l)
	e, err := NewEndpoint(l, Options{Queries: q, Texts: text.New(q, nil), Status: r.fake.Status, Timeline: r.fake.timeline})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.watch.Close() })
	var req fasthttp.Request
	if err := req.Read(bufio.NewReader(strings.NewReader(string(rawRequest("POST", "/v2/models/simple/infer", header, []byte(body)))))); err != nil {
		t.Fatal(err)
	}
	var ctx fasthttp.RequestCtx
	ctx.Init(&req, nil, nil)
	return func() {
		ctx.Response.Reset()
		e.Handle(&ctx)
		if ctx.Response.StatusCode() != http.StatusOK {
			t.Fatalf("%d %s", ctx.Response.StatusCode(), ctx.Response.Body())
		}
	}
}

func simpleBinary() (body string, header map[string]string) {
	head := `{"id":"1","inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"INT32","parameters":{"binary_data_size":64}},` +
		`{"name":"INPUT1","shape":[1,16],"datatype":"INT32","parameters":{"binary_data_size":64}}],` +
		`"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}},{"name":"OUTPUT1","parameters":{"binary_data":true}}]}`
	return head + strings.Repeat("\x01\x02\x03\x04", 32), map[string]string{headerLength: strconv.Itoa(len(head))}
}

func BenchmarkInferJSON(b *testing.B) {
	one := handling(b, simple(`"id":"1",`), nil)
	b.ReportAllocs()
	for b.Loop() {
		one()
	}
}

func BenchmarkInferBinary(b *testing.B) {
	body, header := simpleBinary()
	one := handling(b, body, header)
	b.ReportAllocs()
	for b.Loop() {
		one()
	}
}

// A request of "simple" takes this much new memory at most.
const maxAllocs = 2

func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector empties pools")
	}
	body, header := simpleBinary()
	for name, one := range map[string]func(){
		"JSON": handling(t, simple(`"id":"1",`), nil), "binary": handling(t, body, header),
		"a variant": handling(t, simple(`"parameters":{"variant":"best","least_accuracy":76.5},`), nil),
	} {
		if n := testing.AllocsPerRun(200, one); n > maxAllocs {
			t.Errorf("%s: %v allocations, at most %d", name, n, maxAllocs)
		}
	}
}

// BenchmarkSocket is a whole exchange over loopback, the client's part
// included.
func BenchmarkSocket(b *testing.B) {
	s := serve(b, testLimits())
	body, header := simpleBinary()
	raw := rawRequest("POST", "/v2/models/simple/infer", header, []byte(body))
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		c, err := dialOnce(s)
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		var resp fasthttp.Response
		r := bufio.NewReader(c)
		for pb.Next() {
			c.Write(raw)
			if err := resp.Read(r); err != nil || resp.StatusCode() != http.StatusOK {
				b.Errorf("%d %v", resp.StatusCode(), err)
				return
			}
		}
	})
}
