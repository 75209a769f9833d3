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
	// windowBytes is HTTP/2's flow-control window of a call, connWindowBytes that of a
	// connection: the limits of data that has arrived and was not read. Reading, which
	// accounts for the data, reopens the window.
	windowBytes     = 64 << 10
	connWindowBytes = 4 << 20

	// controlBytes is the largest request of all methods but inference.
	controlBytes = 64 << 10

	// openBytes is accounted to a call while it is open, besides its headers and its
	// request: a goroutine and gRPC's own records.
	openBytes = 16 << 10

	// reflectionShare is the divisor for the part of the memory that reflection streams may
	// hold in unread data. Each is accounted windowBytes, which a client that takes no
	// responses can fill.
	reflectionShare = 16

	// probeBytes is the memory that each connection always has for calls without a token.
	// It is separate from that of queries, so that probes are answered under any load.
	probeBytes = 32 << 10

	// partBytes is how much of a request is read at a time.
	partBytes = 1 << 20

	// headBytes precede each message: a flag for compression, and the length.
	headBytes = 5
)

var (
	errTooLarge = &query.Error{Status: http.StatusRequestEntityTooLarge, Reason: query.ReasonTooLarge,
		Message: "the request is larger than max, limits.request_bytes, before or after it is decompressed"}
	errLargeControl = &query.Error{Status: http.StatusRequestEntityTooLarge, Reason: query.ReasonTooLarge,
		Message: fmt.Sprintf("the request is larger than max, %d bytes for all methods but ModelInfer and ModelStreamInfer", controlBytes)}
	errCompressed = query.Invalid("the request does not match grpc-encoding")
	errOneMessage = query.Invalid("the call must have exactly one request")
	errBrokenOff  = query.Invalid("the request is truncated")
)

// incoming is the source of the requests of a call. It is gRPC's own transport stream, read
// piece by piece, so that memory is accounted before it is taken. gRPC itself would read
// whole requests into memory, of all calls at the same time.
type incoming interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
}

// incomingOf returns the transport stream of a call. It fails if the linked version of gRPC
// no longer has these methods.
func incomingOf(ctx context.Context) (incoming, error) {
	in, ok := grpc.ServerTransportStreamFromContext(ctx).(incoming)
	if !ok {
		return nil, status.Error(codes.Internal, "overlapd was built with an unknown version of gRPC")
	}
	return in, nil
}

// parts is an io.Reader over the bytes of a request.
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

// receiver reads requests of at most most bytes. Bytes that arrive are accounted to
// arriving, the connection's share; the decompressed and decoded request to memory. A
// client that sends slowly thus holds only its share.
type receiver struct {
	arriving, memory *query.Budget
	most             int64
}

// receive reads the next request of a call, or returns io.EOF after the last. It calls
// coming when the first bytes of a request arrive.
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

// fill reads a request of the given length, or to its end if the length is negative, into a
// body of memory.
func (r receiver) fill(memory *query.Budget, from io.Reader, bytes int64) (*query.Body, error) {
	// Holding gives the body a buffer of its own: a large pooled one would be accounted in
	// full for a small request.
	b, fault := memory.Holding(nil)
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

// inflate decompresses a request. The limit applies to the decompressed size as well.
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

// receiveOnly reads the single request of a call, and fails if the call has none or
// several.
func (r receiver) receiveOnly(in incoming) (*query.Body, error) {
	b, err := r.receive(in, func() {}) // its timer began with the call
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

// decode decodes a request and releases its bytes.
func (r receiver) decode(b *query.Body, x *exchange) {
	defer b.Release()
	x.unmarshal(b.Bytes, r.memory)
}
