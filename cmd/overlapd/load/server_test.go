package load

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// fasthttp keeps the date of all servers in one goroutine that never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

const modelJSON = `{"name":"simple","versions":["1"],"platform":"onnx","inputs":[
	{"name":"input_ids","datatype":"INT64","shape":[-1,-1]},
	{"name":"attention_mask","datatype":"INT64","shape":[-1,-1]},
	{"name":"x","datatype":"FP32","shape":[1,4]}],
	"outputs":[{"name":"y","datatype":"FP32","shape":[-1,4]}],
	"parameters":{"device":"cpu"}}`

const configJSON = `{"name":"simple","parameters":{"qos_target_us":{"string_value":"50000"}}}`

// server stands in for a daemon: it answers what infer makes of each request.
type server struct {
	url   string
	infer func(ctx *fasthttp.RequestCtx)
	// override may answer in place of all else; it tells whether it did.
	override func(ctx *fasthttp.RequestCtx) bool
	infers   atomic.Int64
}

func answerOK(ctx *fasthttp.RequestCtx) { ctx.SetBodyString(`{"outputs":[]}`) }

// serve starts a server that knows the services "a" and "b".
func serve(t testing.TB, infer func(ctx *fasthttp.RequestCtx)) *server {
	t.Helper()
	s := &server{infer: infer}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + ln.Addr().String()
	h := &fasthttp.Server{
		Handler:               s.handle,
		Logger:                quiet{},
		MaxRequestBodySize:    64 << 20,
		MaxIdleWorkerDuration: 20 * time.Millisecond, // its pool has a goroutine that lives so long
	}
	done := make(chan error, 1)
	go func() { done <- h.Serve(ln) }()
	t.Cleanup(func() {
		if err := h.Shutdown(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return s
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func (s *server) handle(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("application/json")
	if s.override != nil && s.override(ctx) {
		return
	}
	path := string(ctx.Path())
	name, rest, _ := strings.Cut(strings.TrimPrefix(path, "/v2/models/"), "/")
	switch {
	case path == "/v2":
		ctx.SetBodyString(`{"name":"overlapd","version":"test","extensions":[]}`)
	case name != "a" && name != "b":
		ctx.SetStatusCode(404)
		ctx.SetBodyString(fmt.Sprintf(`{"error":"unknown model %s"}`, name))
	case rest == "infer":
		s.infers.Add(1)
		s.infer(ctx)
	case rest == "config":
		ctx.SetBodyString(configJSON)
	default:
		ctx.SetBodyString(modelJSON)
	}
}
