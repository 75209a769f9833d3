package rpc

import (
	"context"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

var (
	errReflections = query.Unavailable(query.ReasonNoMemory, "too many streams of reflection are open: close some")
	errDecoded     = &query.Error{Status: http.StatusRequestEntityTooLarge, Reason: query.ReasonTooLarge,
		Message: "the request takes more memory once it is decoded than limits.memory_bytes: send raw_input_contents, or less"}
	errMalformed = query.Invalid("the message is not one of the protocol")
)

// discardUnknown drops fields that the protocol does not have: none is passed on.
var discardUnknown = proto.UnmarshalOptions{DiscardUnknown: true}

// exchange is an inference request and its answer, alone or of a stream. The client
// of a stream may want the last answer marked as final, and any client may be in a
// hurry: it allows less time than the target of the service. What is wrong with a request
// as it is received is kept, not returned: gRPC would call it a fault of the server.
type exchange struct {
	request       inference.ModelInferRequest
	fault         *query.Error
	memory        *query.Budget // budget that held was taken from
	held          int64
	ctx           context.Context
	stream, final bool
	hurried       bool
	answer        *outgoing
}

// release gives the memory of the request back.
func (x *exchange) release() {
	if x.held > 0 {
		x.memory.Give(x.held)
		x.held = 0
	}
}

// unmarshal reads a message.
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

// Memory that decoding takes for what hardly has bytes on the wire, at most.
const (
	objectBytes = 384 // a message
	sliceBytes  = 64  // a slice in a list, besides what is in it
	stringBytes = 16

	// scalarParts is how often the elements of typed contents are in memory: in a
	// slice, behind which append may have made as much room again, and packed.
	scalarParts = 3
)

// measure returns how much memory a message takes once it is decoded and its typed
// contents are packed, at most.
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
			if f.Name() == "bytes_contents" { // which is packed, too
				bytes += int64(len(value))
			}
		case protoreflect.FloatKind, protoreflect.DoubleKind:
			bytes += scalarParts * int64(len(value))
		default: // a varint
			for _, c := range value {
				if c < 0x80 { // it ends
					bytes += scalarParts * 8
				}
			}
		}
	}
	return bytes, true
}
