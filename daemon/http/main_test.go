package http

import (
	"testing"

	"go.uber.org/goleak"
)

// fasthttp keeps one goroutine per process that rewrites the Date header, and
// one per server that notices the end of the server only when it wakes.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}
