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

// outgoing is an answer in the bytes that are sent. gRPC keeps it until the client
// has made room for it, long after the call is over for us. So its memory is
// reserved before it is written, and given back when gRPC needs it no more or the
// connection is closed. A client that does not take it in time loses its connection.
type outgoing struct {
	bytes []byte
	conn  *conn
	free  func() // nil if the memory of the call covers it
}

// plain has the answers of a call go as they are, before any is sent: gRPC would
// compress those to a compressed request, into memory that nobody accounts.
func plain(ctx context.Context) {
	// It fails only outside of a call, which tests are.
	_ = grpc.SetSendCompressor(ctx, encoding.Identity)
}

// reserve returns an empty answer with room for so many bytes, or why there is no
// memory for it.
func reserve(ctx context.Context, bytes int) (*outgoing, *query.Error) {
	o := &outgoing{conn: connOf(ctx)}
	if !mem.IsBelowBufferPoolingThreshold(bytes) { // gRPC does not report when it is done with a smaller one
		memory := o.conn.listener.memory
		if err := memory.Reserve(int64(bytes)); err != nil {
			return nil, err
		}
		give := sync.OnceFunc(func() { memory.Give(int64(bytes)) })
		forget := context.AfterFunc(o.conn.open, give) // gRPC frees nothing when the connection is closed
		o.free = func() {
			forget()
			give()
		}
	}
	o.bytes = make([]byte, 0, bytes)
	return o, nil
}

// encoded returns a message as an answer.
func encoded(ctx context.Context, m proto.Message) (*outgoing, *query.Error) {
	o, err := reserve(ctx, proto.Size(m))
	if err != nil {
		return nil, err
	}
	o.append(m)
	return o, nil
}

// append encodes a message whose size was asked for a moment ago. Ours hold no
// value that has no encoding.
func (o *outgoing) append(m proto.Message) {
	o.bytes, _ = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(o.bytes, m)
}

// release gives the memory of an answer back that is not sent.
func (o *outgoing) release() {
	if o != nil && o.free != nil {
		o.free()
	}
}

// Numbers of the fields that are written without a message that holds them.
const (
	numberRawOutputs = 6 // of ModelInferResponse
	numberResponse   = 2 // of ModelStreamInferResponse
)

// Encode writes the answer, its outputs as raw bytes. They are copied once, out of
// shared memory into what is sent.
func (x *exchange) Encode(c *query.Call) (err *query.Error) {
	a := &inference.ModelInferResponse{ModelName: x.request.ModelName, ModelVersion: query.ModelVersion, Id: x.request.Id}
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

// codec is that of gRPC, which knows how to send what is outgoing.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Marshal encodes a message, or hands gRPC an answer that is encoded already.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	o, ok := v.(*outgoing)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	if o.free == nil {
		return mem.BufferSlice{mem.SliceBuffer(o.bytes)}, nil
	}
	late := time.AfterFunc(o.conn.listener.writeTimeout, func() { _ = o.conn.Close() })
	return mem.BufferSlice{mem.NewBuffer(&o.bytes, sent(func() {
		late.Stop()
		o.free()
	}))}, nil
}

// sent is called when gRPC needs an answer no more. To gRPC it is the pool that the
// bytes go back to.
type sent func()

// Get implements mem.BufferPool.
func (sent) Get(bytes int) *[]byte { b := make([]byte, bytes); return &b }

// Put implements mem.BufferPool.
func (s sent) Put(*[]byte) { s() }
