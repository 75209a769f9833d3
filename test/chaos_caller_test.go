package test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// caller is a client with one connection, on which it asks and asks again.
type caller interface {
	// ask sends a query and waits for the answer.
	ask(service string, q query) answer

	// proven reports whether an answer has come on this connection: the
	// daemon has taken it, and owes one to whatever it is sent.
	proven() bool

	// close fails if more came than was asked for.
	close() error
}

// httpCaller speaks HTTP on a socket of its own, so that it sees every byte
// that comes.
type httpCaller struct {
	network string // "" for TCP
	address string
	from    string // an address of this host, "" for any
	binary  bool
	conn    net.Conn
	in      *bufio.Reader
	answers int // on this connection
}

func (c *httpCaller) ask(service string, q query) answer {
	a, last := c.exchange(service, q)
	if a.Err != nil || last {
		if err := c.close(); a.Err == nil {
			a.Err = err
		}
	} else {
		c.answers++
	}
	return a
}

// exchange returns an answer, and whether it is the last of its connection.
func (c *httpCaller) exchange(service string, q query) (a answer, last bool) {
	body, err := json.Marshal(q)
	head := len(body)
	if c.binary {
		body, head, err = q.binary()
	}
	if err == nil && c.conn == nil {
		c.answers = 0
		var dialer net.Dialer
		if c.from != "" {
			dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(c.from)}
		}
		if c.conn, err = dialer.Dial(cmp.Or(c.network, "tcp"), c.address); err == nil {
			c.in = bufio.NewReader(c.conn)
		}
	}
	if err != nil {
		return answer{Err: err}, false
	}
	c.conn.SetDeadline(time.Now().Add(patience))
	if _, err := c.conn.Write(post(service, body, head)); err != nil {
		return answer{Err: err}, false
	}
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return answer{Err: err}, false
	}
	a = read(response)
	if n := c.in.Buffered(); n > 0 && a.Err == nil {
		a.Err = fmt.Errorf("%d bytes after the answer", n)
	}
	return a, response.Close
}

// get and post return requests as they are sent.
func get(path string) string {
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, token)
}

func post(service string, body []byte, head int) []byte {
	return append(fmt.Appendf(nil, "POST /v2/models/%s/infer HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\nInference-Header-Content-Length: %d\r\n\r\n",
		service, token, len(body), head), body...)
}

func (c *httpCaller) proven() bool { return c.answers > 0 }

// straggler is how long something may still come that was not asked for.
const straggler = time.Millisecond

func (c *httpCaller) close() error {
	if c.conn == nil {
		return nil
	}
	defer func() { c.conn.Close(); c.conn = nil }()
	c.conn.SetReadDeadline(time.Now().Add(straggler))
	if b, err := c.in.ReadByte(); err == nil {
		return fmt.Errorf("the byte %#x came though all was answered", b)
	}
	return nil
}

// grpcCaller speaks gRPC.
type grpcCaller struct {
	conn   *grpc.ClientConn
	client inference.GRPCInferenceServiceClient
	some   bool
}

func newGRPCCaller(address string, options ...grpc.DialOption) (*grpcCaller, error) {
	conn, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, err
	}
	return &grpcCaller{conn: conn, client: inference.NewGRPCInferenceServiceClient(conn)}, nil
}

func (c *grpcCaller) ask(service string, q query) answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.askWithin(ctx, service, q)
}

func (c *grpcCaller) askWithin(ctx context.Context, service string, q query) answer {
	var trailer metadata.MD
	response, err := c.client.ModelInfer(withToken(ctx), requestOf(service, q), grpc.Trailer(&trailer))
	reason := trailer.Get("overlapd-reason")
	switch {
	case status.Code(err) == codes.Internal && len(reason) == 1:
		return answer{Status: http.StatusInternalServerError, Reason: reason[0], Error: err.Error()}
	case err != nil && len(reason) == 1:
		return answer{Status: http.StatusServiceUnavailable, Reason: reason[0], Error: err.Error()}
	case err != nil:
		return answer{Err: err}
	case len(response.Outputs) != len(response.RawOutputContents):
		return answer{Err: errors.New("outputs without data")}
	}
	c.some = true
	a := answer{Status: http.StatusOK, ID: response.Id}
	for i, out := range response.Outputs {
		t := tensor{Name: out.Name, Datatype: out.Datatype, Shape: out.Shape}
		t.take(response.RawOutputContents[i])
		a.Outputs = append(a.Outputs, t)
	}
	return a
}

func withToken(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// requestOf returns a query as gRPC sends it.
func requestOf(service string, q query) *inference.ModelInferRequest {
	request := &inference.ModelInferRequest{ModelName: service, Id: q.ID}
	for i := range q.Inputs {
		in := &q.Inputs[i]
		request.Inputs = append(request.Inputs, &inference.ModelInferRequest_InferInputTensor{Name: in.Name, Datatype: in.Datatype, Shape: in.Shape})
		request.RawInputContents = append(request.RawInputContents, in.bytes())
	}
	return request
}

func (c *grpcCaller) proven() bool { return c.some }

func (c *grpcCaller) close() error { return c.conn.Close() }

// timedOut tells a daemon that does not answer from one that hangs up.
func timedOut(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}
