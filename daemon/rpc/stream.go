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

// maxPending is the number of queries of a stream that may wait for an answer. The next
// request is read only after the oldest one was answered.
const maxPending = 64

// serveStream implements ModelStreamInfer: it answers each query separately, in the order
// of the requests. One goroutine reads, this one writes, and each pending query has one of
// its own.
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

// stream is one call of ModelStreamInfer.
type stream struct {
	answers *answerer
	grpc    grpc.ServerStream
	in      incoming

	// pending has a channel for each response, in the order of the requests.
	pending chan chan *outgoing

	// ended receives why no further request was read, or nil if the client is done.
	ended chan error

	// queries counts the goroutines of pending queries.
	queries sync.WaitGroup

	mu struct {
		sync.Mutex

		// begun is the number of accepted requests, each of which must be answered.
		begun  int
		closed bool
	}
}

// begin accepts a request. It returns false if the stream is closed.
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

// close accepts no further requests and returns how many were accepted.
func (t *stream) close() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.closed = true
	return t.mu.begun
}

// read reads requests until the client is done or gone, at the latest until the call ends.
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
			err = statusOf(fault) // the token was replaced since the stream began
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

// unread returns how much data the transport may hold behind the current request: a full
// window if so many responses are pending that reading stops, otherwise nothing. Only read
// adds to pending, so the answer cannot become wrong meanwhile.
func (t *stream) unread() int64 {
	if len(t.pending) < cap(t.pending) {
		return 0
	}
	return windowBytes
}

// write sends the responses in order. When the daemon stops, it sends those of accepted
// requests and ends the call.
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

// send sends one response.
func (t *stream) send(o *outgoing) error { return t.grpc.SendMsg(o) }

// rest sends the responses of all accepted requests and returns last. It stops if the
// client has gone, since a response may then never come.
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

// forget releases the responses that were not sent.
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

// answer answers one request of the stream. An error is a response of its own and does not
// end the stream. It is too small to be accounted.
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
	text, _ := proto.Marshal(m) // cannot fail
	return &outgoing{bytes: text}
}
