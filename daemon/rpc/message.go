package rpc

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

var (
	errReflections = query.Unavailable(query.ReasonNoMemory, "too many reflection streams are open: close some")
	errDecoded     = &query.Error{Status: http.StatusRequestEntityTooLarge, Reason: query.ReasonTooLarge,
		Message: "the decoded request exceeds limits.memory_bytes: send raw_input_contents, or less"}
	errMalformed = query.Invalid("the message does not match the protocol")
)

// discardUnknown drops unknown fields, which nothing here would read.
var discardUnknown = proto.UnmarshalOptions{DiscardUnknown: true}

// exchange is an inference request and its response, of a single call or of a stream. fault
// is what is wrong with the request. It is kept instead of returned, because gRPC would
// report an error of decoding as an internal one.
type exchange struct {
	request inference.ModelInferRequest
	fault   *query.Error

	// memory is the budget that held bytes were taken from for the decoded request.
	memory *query.Budget
	held   int64
	ctx    context.Context

	// arrival is when the request had been read.
	arrival time.Time

	// service is the name of the service, which has the version if it is not the highest.
	service string

	// final is set if a stream's client wants the last response marked.
	stream, final bool

	// hurried is set if the client allows less time than the target of the service.
	hurried bool
	answer  *outgoing
}

// release gives back the memory of the request. Further calls have no effect.
func (x *exchange) release() {
	if x.held > 0 {
		x.memory.Give(x.held)
		x.held = 0
	}
}

// unmarshal decodes a message after accounting for the memory that it will take. An error
// is stored in x.fault.
func (x *exchange) unmarshal(b []byte, memory *query.Budget) {
	bytes, ok := measure(b, x.request.ProtoReflect().Descriptor())
	switch {
	case !ok:
		x.fault = errMalformed
	case bytes > memory.Limit():
		x.fault = errDecoded
	case !memory.Take(bytes):
		x.fault = query.ErrBodyMemory
	default:
		x.memory, x.held = memory, bytes
		if discardUnknown.Unmarshal(b, &x.request) != nil {
			x.fault = errMalformed
		}
	}
}

// Upper bounds of the memory that decoding takes for what is small on the wire, in bytes.
const (
	objectBytes = 384 // a message
	sliceBytes  = 64  // a slice in a list, besides its contents
	stringBytes = 16

	// scalarParts is how many copies of typed contents may exist at the same time: the
	// slice, as much spare capacity added by append, and the packed bytes.
	scalarParts = 3
)

// measure returns an upper bound of the memory that a message takes once it is decoded and
// its typed contents are packed. It walks the wire format without decoding: a few bytes of
// tags could otherwise become gigabytes of objects. ok is false if the message is
// malformed.
func measure(b []byte, of protoreflect.MessageDescriptor) (bytes int64, ok bool) {
	bytes = objectBytes
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, false
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return 0, false
		}
		value := b[:n]
		b = b[n:]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		f := of.Fields().ByNumber(number)
		if f == nil {
			continue
		}
		switch f.Kind() {
		case protoreflect.MessageKind:
			made, ok := measure(value, f.Message())
			if !ok {
				return 0, false
			}
			bytes += made
		case protoreflect.StringKind:
			bytes += int64(len(value)) + stringBytes
		case protoreflect.BytesKind:
			bytes += int64(len(value)) + sliceBytes
			if f.Name() == "bytes_contents" { // packed as well
				bytes += int64(len(value))
			}
		case protoreflect.FloatKind, protoreflect.DoubleKind:
			bytes += scalarParts * int64(len(value))
		default: // varints
			for _, c := range value {
				if c < 0x80 { // the last byte of a varint
					bytes += scalarParts * 8
				}
			}
		}
	}
	return bytes, true
}
