package rpc

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// maxPending is how many queries of one stream may wait for their
// answers. The next is read when the first of them is answered.
const maxPending = 64

// serveStream answers the queries of a stream, each on its own, in the
// order in which they came. One goroutine reads, this one writes, and each
// query that waits has one.
func serveStream(a *answerer, g grpc.ServerStream) error {
	in, err := incomingOf(g.Context())
	if err != nil {
		return err
	}
	plain(g.Context())
	ctx, cancel := context.WithCancel(g.Context())
	t := &stream{
		in:      in,
		answers: a,
		grpc:    g,
		pending: make(chan chan *outgoing, maxPending-1),
		ended:   make(chan error, 1),
	}
	go t.read(ctx)
	err = t.write()
	cancel()
	t.close()
	t.queries.Wait()
	t.forget()
	return refuse(g.Context(), err)
}

// stream is one ModelStreamInfer.
type stream struct {
	answers *answerer
	grpc    grpc.ServerStream
	in      incoming
	pending chan chan *outgoing // in order
	ended   chan error          // why there is no further request; nil if the client is done
	queries sync.WaitGroup      // queries begun

	mu struct {
		sync.Mutex
		begun  int // requests that are owed an answer
		closed bool
	}
}

// begin accepts a request, unless the stream is closed.
func (t *stream) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return false
	}
	t.mu.begun++
	t.queries.Add(1)
	return true
}

// close accepts no further request, and returns how many were.
func (t *stream) close() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.closed = true
	return t.mu.begun
}

// read takes in requests until the client is done or gone. It ends with the
// call at the latest.
func (t *stream) read(ctx context.Context) {
	r := t.answers.receiver(ctx)
	for {
		x := &exchange{stream: true}
		b, err := r.receive(t.in, func() { begun(ctx) })
		ended(ctx, err == nil)
		if err == nil {
			r.decode(b, x)
		}
		if fault := t.answers.guard.allows(ctx); err == nil && fault != nil {
			err = statusOf(fault) // the token has been replaced since
		}
		unread := t.unread()
		if unread > 0 && !r.arriving.Take(unread) {
			unread, err = 0, cmp.Or[error](err, query.ErrBodyMemory)
		}
		if err != nil || !t.begin() {
			x.release()
			r.arriving.Give(unread)
			if errors.Is(err, io.EOF) {
				err = nil
			}
			t.ended <- err
			return
		}
		answer := make(chan *outgoing, 1)
		select {
		case t.pending <- answer:
			r.arriving.Give(unread)
		case <-ctx.Done():
			r.arriving.Give(unread)
			x.release()
			t.queries.Done()
			return
		}
		go func() {
			defer t.queries.Done()
			answer <- t.answer(ctx, x)
		}()
	}
}

// unread returns how much may come behind a request before anybody reads it: nothing,
// unless so many answers are pending that the next request waits. Only read adds to them.
func (t *stream) unread() int64 {
	if len(t.pending) < cap(t.pending) {
		return 0
	}
	return windowBytes
}

// write sends the answers. When the daemon stops it sends those that are due,
// and then ends the call.
func (t *stream) write() error {
	gone := t.grpc.Context()
	for sent := 0; ; sent++ {
		select {
		case answer := <-t.pending:
			if err := t.send(<-answer); err != nil {
				return err
			}
		case err := <-t.ended:
			return t.rest(sent, err)
		case <-t.answers.stopping:
			return t.rest(sent, statusOf(query.ErrDraining))
		case <-gone.Done():
			return status.FromContextError(gone.Err()).Err()
		}
	}
}

func (t *stream) send(o *outgoing) error { return t.grpc.SendMsg(o) }

// rest sends the answers that are still owed, and returns last. Once the client
// has left, one that is owed may never come.
func (t *stream) rest(sent int, last error) error {
	gone := t.grpc.Context()
	for owed := t.close(); sent < owed; sent++ {
		select {
		case answer := <-t.pending:
			if err := t.send(<-answer); err != nil {
				return err
			}
		case <-gone.Done():
			return status.FromContextError(gone.Err()).Err()
		}
	}
	return last
}

// forget gives the memory of the answers back that were not sent.
func (t *stream) forget() {
	for {
		select {
		case answer := <-t.pending:
			(<-answer).release()
		default:
			return
		}
	}
}

// answer answers one request of the stream. What is wrong with it does not end
// the stream. Such an answer is small, so that it is not accounted.
func (t *stream) answer(ctx context.Context, x *exchange) *outgoing {
	o, err := t.answers.answer(ctx, x)
	if err == nil {
		return o
	}
	m := &inference.ModelStreamInferResponse{
		ErrorMessage: err.Message,
		InferResponse: &inference.ModelInferResponse{
			ModelName: query.Cut(x.request.ModelName), Id: x.request.Id[:min(len(x.request.Id), query.MaxIDBytes)],
			Parameters: map[string]*inference.InferParameter{
				reasonTrailer: {ParameterChoice: &inference.InferParameter_StringParam{StringParam: err.Reason}},
			},
		},
	}
	text, _ := proto.Marshal(m) // it holds nothing that has no encoding
	return &outgoing{bytes: text}
}
