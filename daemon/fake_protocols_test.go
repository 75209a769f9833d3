package daemon

import (
	"context"
	"errors"
	"flag"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/http"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/daemon/text"
	"github.com/overlapd/overlapd/models"
)

var update = flag.Bool("update", false, "rewrite the files in testdata and examples")

const contentJSON = "application/json"

// testToken is one that lets in.
const testToken = "0123456789abcdef-test"

// tokenFile writes a file with a token.
func tokenFile(t testing.TB, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	writeFile(t, path, token+"\n")
	return path
}

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

// spec describes an input or output. A dimension of less than 0 is not fixed.
func spec(name string, t models.DataType, shape ...int64) models.TensorSpec {
	dims := make([]models.Dim, len(shape))
	for i := range shape {
		dims[i].Value = shape[i]
	}
	return models.TensorSpec{Name: name, Type: models.TensorType(t, dims...)}
}

func testLimits() config.Limits {
	l := config.Default().Limits
	l.IdleTimeout = 20 * time.Second
	return l
}

// queriesOf returns what serves the queries of a host within limits.
func queriesOf(h query.Host, l config.Limits) *query.Server {
	return &query.Server{
		Host: h, Memory: query.NewBudget(l.MemoryBytes), Connections: query.NewPlaces(l.Connections),
		Version: "test", Log: zerolog.Nop(),
	}
}

// serveHTTP serves queries by HTTP until the test ends.
func serveHTTP(t testing.TB, q *query.Server, l config.Limits) net.Addr {
	t.Helper()
	o := http.Options{Queries: q, Texts: text.New(q, nil)}
	if b, ok := q.Host.(*backend); ok {
		o.Status, o.Timeline = publishedBy(b).status, b.Timeline()
	}
	e, err := http.NewEndpoint(l, o)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := access.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- e.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		e.Shutdown(ctx)
		ln.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return ln.Addr()
}

// serveRemote serves queries by gRPC until the test ends, and returns a client.
func serveRemote(t testing.TB, q *query.Server, l config.Limits) inference.GRPCInferenceServiceClient {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := rpc.New(q, text.New(q, nil), l, nil)
	served := make(chan error, 1)
	go func() { served <- r.Serve(ln) }()
	c, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(r.Shutdown(ctx), <-served); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	return inference.NewGRPCInferenceServiceClient(c)
}

// writeFile writes a file of a test.
func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
