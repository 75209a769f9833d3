package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/overlapd/overlapd/daemon/query"
)

const (
	// windowBytes is how much of a request may have come that nobody has read
	// yet, and connWindowBytes of all requests of a connection: what is read
	// and accounted makes room for more.
	windowBytes     = 64 << 10
	connWindowBytes = 4 << 20

	// controlBytes bounds every request but those to infer.
	controlBytes = 64 << 10

	// openBytes is accounted for a call while it is open, besides its headers and what
	// it sends: a goroutine, and what gRPC keeps of it.
	openBytes = 16 << 10

	// reflectionShare is the part of the memory, one in so many, that streams of reflection
	// may have for what has come that nobody has read. It is windowBytes for each, which
	// a client may fill that takes no answers.
	reflectionShare = 16

	// probeBytes is what each connection always has for calls that need no token. They have
	// memory of their own, so that probes are answered under any load.
	probeBytes = 32 << 10

	// partBytes is how much of a request is asked for at a time.
	partBytes = 1 << 20

	headBytes = 5 // before a message: whether it is compressed, and its length
)

var (
	errTooLarge = &query.Error{Status: http.StatusRequestEntityTooLarge, Reason: query.ReasonTooLarge,
		Message: "the request is larger than max, limits.request_bytes, before or after it is decompressed"}
	errLargeControl = &query.Error{Status: http.StatusRequestEntityTooLarge, Reason: query.ReasonTooLarge,
		Message: fmt.Sprintf("the request is larger than max, %d bytes for all methods but ModelInfer and ModelStreamInfer", controlBytes)}
	errCompressed = query.Invalid("the request is not what grpc-encoding says")
	errOneMessage = query.Invalid("the call brings one request, neither none nor several")
	errBrokenOff  = query.Invalid("the request is broken off")
)

// incoming is where the requests of a call come from. It is gRPC's own stream,
// read as gRPC reads it, but piece by piece, so that memory is accounted before
// it is taken. gRPC itself would take in a request whole, and so as many as
// there are calls.
type incoming interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
}

func incomingOf(ctx context.Context) (incoming, error) {
	in, ok := grpc.ServerTransportStreamFromContext(ctx).(incoming)
	if !ok {
		return nil, status.Error(codes.Internal, "overlapd was built with a gRPC that it does not know")
	}
	return in, nil
}

// parts reads the bytes of a request.
type parts struct{ incoming }

// Read implements io.Reader.
func (p parts) Read(b []byte) (int, error) {
	all, err := p.incoming.Read(min(len(b), partBytes))
	if err != nil {
		return 0, err
	}
	defer all.Free()
	return all.CopyTo(b), nil
}

// receiver reads requests of at most so many bytes. What comes of them takes from the
// share that their connection has of a memory, which is arriving; what they are once
// they have come, from the memory.
type receiver struct {
	arriving, memory *query.Budget
	most             int64
}

// receive reads the next request of a call, or returns io.EOF after the last. It
// calls coming when one begins to come.
func (r receiver) receive(in incoming, coming func()) (*query.Body, error) {
	var head [headBytes]byte
	if err := in.ReadMessageHeader(head[:]); errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errBrokenOff
	} else if err != nil {
		return nil, err
	}
	coming()
	b, err := r.fill(r.arriving, parts{in}, int64(binary.BigEndian.Uint32(head[1:])))
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errBrokenOff
	}
	if err != nil || head[0] == 0 {
		return b, err
	}
	defer b.Release()
	return r.inflate(b.Bytes, in.RecvCompress())
}

// fill reads a request into some memory, of so many bytes or, if that is negative, to
// its end.
func (r receiver) fill(memory *query.Budget, from io.Reader, bytes int64) (*query.Body, error) {
	b, fault := memory.Holding(nil) // a buffer of its own: a large one at hand would count for a small request
	if fault != nil {
		return nil, fault
	}
	err := b.Fill(from, bytes, r.most)
	if err == nil {
		return b, nil
	}
	b.Release()
	if err == query.ErrBodyTooLarge {
		err = errTooLarge
	}
	return nil, err
}

// inflate decompresses a request.
func (r receiver) inflate(packed []byte, name string) (*query.Body, error) {
	c := encoding.GetCompressor(name)
	if c == nil {
		return nil, errCompressed
	}
	plain, err := c.Decompress(bytes.NewReader(packed))
	if err != nil {
		return nil, errCompressed
	}
	b, err := r.fill(r.memory, plain, -1)
	if err != nil && err != errTooLarge && err != query.ErrBodyMemory {
		err = errCompressed
	}
	return b, err
}

// receiveOnly reads the one request of a call.
func (r receiver) receiveOnly(in incoming) (*query.Body, error) {
	b, err := r.receive(in, func() {}) // the time for it began with the call
	if err == nil {
		if err = in.ReadMessageHeader(make([]byte, headBytes)); errors.Is(err, io.EOF) {
			return b, nil
		}
		b.Release()
	}
	if err == nil || errors.Is(err, io.EOF) {
		return nil, errOneMessage
	}
	return nil, err
}

// decode reads a request that has come, whose bytes are given back.
func (r receiver) decode(b *query.Body, x *exchange) {
	defer b.Release()
	x.unmarshal(b.Bytes, r.memory)
}
