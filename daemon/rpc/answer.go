package rpc

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// outgoing is an encoded response. gRPC keeps it until the client has made room for it
// (flow control), long after the handler has returned. Its memory is therefore reserved
// before it is encoded, and given back when gRPC has sent it or the connection is closed. A
// connection whose client does not take a response within the write timeout is closed.
type outgoing struct {
	bytes []byte
	conn  *conn

	// free is nil if the memory accounted for the call covers the response.
	free func()
}

// plain disables compression for the responses of a call. It is called before the first
// one: gRPC would answer a compressed request with compressed responses, in memory that is
// not accounted.
func plain(ctx context.Context) {
	// It fails only outside of a call, that is, in tests.
	_ = grpc.SetSendCompressor(ctx, encoding.Identity)
}

// reserve returns an empty response with the given capacity. It fails if there is no memory
// for it.
func reserve(ctx context.Context, bytes int) (*outgoing, *query.Error) {
	o := &outgoing{conn: connOf(ctx)}
	// gRPC does not report when it is done with a smaller buffer, so those cannot be
	// accounted.
	if !mem.IsBelowBufferPoolingThreshold(bytes) {
		memory := o.conn.listener.memory
		if err := memory.Reserve(int64(bytes)); err != nil {
			return nil, err
		}
		give := sync.OnceFunc(func() { memory.Give(int64(bytes)) })
		// gRPC does not free buffers when a connection is closed.
		forget := context.AfterFunc(o.conn.open, give)
		o.free = func() {
			forget()
			give()
		}
	}
	o.bytes = make([]byte, 0, bytes)
	return o, nil
}

// encoded returns a message as a response.
func encoded(ctx context.Context, m proto.Message) (*outgoing, *query.Error) {
	o, err := reserve(ctx, proto.Size(m))
	if err != nil {
		return nil, err
	}
	o.append(m)
	return o, nil
}

// append encodes a message whose size was computed just before. Encoding cannot fail for
// the messages of this package.
func (o *outgoing) append(m proto.Message) {
	o.bytes, _ = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(o.bytes, m)
}

// release gives back the memory of a response that is not sent. o may be nil.
func (o *outgoing) release() {
	if o != nil && o.free != nil {
		o.free()
	}
}

// Field numbers of values that are encoded without their message.
const (
	numberRawOutputs = 6 // of ModelInferResponse
	numberResponse   = 2 // of ModelStreamInferResponse
)

// Encode writes the response with its outputs as raw bytes. They are copied once, from
// shared memory into the buffer that is sent, which is why the message around them is
// encoded by hand.
func (x *exchange) Encode(c *query.Call) (err *query.Error) {
	a := &inference.ModelInferResponse{ModelName: x.request.ModelName, ModelVersion: c.Service.Version, Id: x.request.Id}
	if x.final || c.Reply.Variant != "" {
		a.Parameters = make(map[string]*inference.InferParameter)
	}
	if x.final {
		a.Parameters["triton_final_response"] = &inference.InferParameter{ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: true}}
	}
	if v := c.Reply.Variant; v != "" {
		a.Parameters[query.ParameterVariant] = &inference.InferParameter{ParameterChoice: &inference.InferParameter_StringParam{StringParam: v}}
	}
	raw := 0
	for _, o := range c.Outputs {
		p, t := &c.Signature.Outputs[o.Port], &c.Reply.Outputs[o.Port]
		a.Outputs = append(a.Outputs, &inference.ModelInferResponse_InferOutputTensor{
			Name: p.Name, Datatype: p.Type.Protocol(), Shape: slices.Clone(t.Shape),
		})
		raw += protowire.SizeTag(numberRawOutputs) + protowire.SizeBytes(len(t.Data))
	}
	bytes := proto.Size(a) + raw
	// In a stream the response is a field of another message, see ModelStreamInferResponse.
	room := bytes
	if x.stream {
		room = protowire.SizeTag(numberResponse) + protowire.SizeBytes(bytes)
	}
	if x.answer, err = reserve(x.ctx, room); err != nil {
		return err
	}
	if x.stream {
		x.answer.bytes = protowire.AppendTag(x.answer.bytes, numberResponse, protowire.BytesType)
		x.answer.bytes = protowire.AppendVarint(x.answer.bytes, uint64(bytes))
	}
	x.answer.append(a)
	for _, o := range c.Outputs {
		x.answer.bytes = protowire.AppendTag(x.answer.bytes, numberRawOutputs, protowire.BytesType)
		x.answer.bytes = protowire.AppendBytes(x.answer.bytes, c.Reply.Outputs[o.Port].Data)
	}
	return nil
}

// codec is gRPC's codec extended by outgoing.
type codec struct{ encoding.CodecV2 }

// newCodec wraps the codec for Protocol Buffers.
func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Marshal encodes a message. An outgoing is passed on as it is.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	o, ok := v.(*outgoing)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	if o.free == nil {
		return mem.BufferSlice{mem.SliceBuffer(o.bytes)}, nil
	}
	// gRPC applies no write timeout of its own.
	late := time.AfterFunc(o.conn.listener.writeTimeout, func() { _ = o.conn.Close() })
	return mem.BufferSlice{mem.NewBuffer(&o.bytes, sent(func() {
		late.Stop()
		o.free()
	}))}, nil
}

// sent is called when gRPC no longer needs a response. gRPC sees it as the pool that the
// buffer returns to.
type sent func()

// Get implements mem.BufferPool. gRPC does not call it.
func (sent) Get(bytes int) *[]byte { b := make([]byte, bytes); return &b }

// Put implements mem.BufferPool. gRPC calls it when the response was sent.
func (s sent) Put(*[]byte) { s() }
