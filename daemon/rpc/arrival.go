package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

const (
	// windowBytes is how much of a request may have come that nobody has read
	// yet, and connWindowBytes of all requests of a connection: what is read
	// and accounted makes room for more.
	windowBytes     = 64 << 10
	connWindowBytes = 4 << 20

	// controlBytes bounds every request but those to infer.
	controlBytes = 64 << 10

	// callBytes is accounted for a call besides what it sends to infer.
	callBytes = windowBytes + controlBytes

	// streamShare is the part of the memory, one in so many, that open streams
	// may have for being open. They may ask nothing for as long as they like;
	// the rest is for calls.
	streamShare = 2

	// maxProbes is how many calls may be open at once that need no token. They
	// have memory of their own, so that probes are answered under any load.
	maxProbes = 64

	// firstBytes is what an uncommonly large request gets before any of it has
	// come; it then doubles. A client cannot take memory by announcing much.
	firstBytes = 1 << 20

	// partBytes is how much of a request is asked for at a time.
	partBytes = 1 << 20

	headBytes = 5 // of a message: whether it is compressed, and its length
)

var (
	errTooLarge = &Fault{Status: http.StatusRequestEntityTooLarge, Reason: reasonTooLarge,
		Message: "the request is larger than max, limits.request_bytes, before or after it is decompressed"}
	errCompressed = invalid("the request is not what grpc-encoding says")
	errOneMessage = invalid("the call brings one request, neither none nor several")
	errBrokenOff  = invalid("the request is broken off")
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

// receive reads the next request of a call, or returns io.EOF after the last. It
// calls begun when one begins to come.
func (s *Server) receive(in incoming, m *message, begun func()) error {
	var head [headBytes]byte
	if err := in.ReadMessageHeader(head[:]); errors.Is(err, io.ErrUnexpectedEOF) {
		return errBrokenOff
	} else if err != nil {
		return err
	}
	begun()
	a := arrival{memory: &s.memory, most: s.limits.MessageBytes}
	defer a.free()
	if err := a.fill(partsOf(in), int64(binary.BigEndian.Uint32(head[1:]))); err != nil {
		return err
	}
	if head[0] == 0 {
		m.decode(a.b, &s.memory)
		return nil
	}
	inflated := arrival{memory: &s.memory, most: s.limits.MessageBytes}
	defer inflated.free()
	if err := inflated.inflate(&a, in.RecvCompress()); err != nil {
		return err
	}
	a.free()
	m.decode(inflated.b, &s.memory)
	return nil
}

// receiveOnly reads the one request of a call.
func (s *Server) receiveOnly(ctx context.Context, m *message) error {
	in, err := incomingOf(ctx)
	if err != nil {
		return err
	}
	err = s.receive(in, m, func() {}) // the time for it began with the call
	if err == nil {
		if err = in.ReadMessageHeader(make([]byte, headBytes)); errors.Is(err, io.EOF) {
			return nil
		}
		s.memory.give(m.held)
		m.held = 0
	}
	if err == nil || errors.Is(err, io.EOF) {
		return errOneMessage
	}
	return err
}

// partsOf returns what reads at most so many bytes of a request.
func partsOf(in incoming) func(b []byte) (int, error) {
	return func(b []byte) (int, error) {
		parts, err := in.Read(len(b))
		if err != nil {
			return 0, err
		}
		defer parts.Free()
		return parts.CopyTo(b), nil
	}
}

// arrival is a request on its way in. Its capacity is accounted.
type arrival struct {
	b      []byte
	memory *budget
	most   int64
}

// fill reads a request of so many bytes.
func (a *arrival) fill(read func([]byte) (int, error), bytes int64) error {
	if bytes > a.most {
		return errTooLarge
	}
	for int64(len(a.b)) < bytes {
		if len(a.b) == cap(a.b) {
			if err := a.grow(bytes); err != nil {
				return err
			}
		}
		end := min(cap(a.b), len(a.b)+partBytes)
		n, err := read(a.b[len(a.b):end])
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errBrokenOff
		}
		if err != nil {
			return err
		}
		a.b = a.b[:len(a.b)+n]
	}
	return nil
}

// grow makes room: twice as much as before, and no more than is needed.
func (a *arrival) grow(needed int64) error {
	size := min(max(2*int64(cap(a.b)), firstBytes), needed)
	if !a.memory.take(size - int64(cap(a.b))) {
		return errMemory
	}
	grown := make([]byte, len(a.b), size)
	copy(grown, a.b)
	a.b = grown
	return nil
}

// inflate reads a request that has come compressed.
func (a *arrival) inflate(from *arrival, name string) error {
	c := encoding.GetCompressor(name)
	if c == nil {
		return errCompressed
	}
	r, err := c.Decompress(bytes.NewReader(from.b))
	if err != nil {
		return errCompressed
	}
	for {
		if len(a.b) == cap(a.b) {
			if err := a.grow(a.most + 1); err != nil {
				return err
			}
		}
		n, err := r.Read(a.b[len(a.b):cap(a.b)])
		a.b = a.b[:len(a.b)+n]
		switch {
		case int64(len(a.b)) > a.most:
			return errTooLarge
		case err == io.EOF:
			return nil
		case err != nil:
			return errCompressed
		}
	}
}

func (a *arrival) free() {
	a.memory.give(int64(cap(a.b)))
	a.b = nil
}
