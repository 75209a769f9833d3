package rpc

import (
	"sync/atomic"

	"google.golang.org/protobuf/proto"
)

var (
	errMemory    = unavailable(reasonMemory, "the requests that are being answered hold all memory there is for them (limits.memory_bytes)")
	errStreams   = unavailable(reasonMemory, "the streams that are open hold all memory there is for them (half of limits.memory_bytes): close some")
	errMalformed = invalid("the message is not one of the protocol")
)

// unmarshal drops fields that the protocol does not have: none is passed on.
var unmarshal = proto.UnmarshalOptions{DiscardUnknown: true}

// budget bounds the memory of all requests together.
type budget struct {
	limit int64
	used  atomic.Int64
}

// take reserves memory, or reports that there is not so much.
func (b *budget) take(bytes int64) bool {
	if b.used.Add(bytes) > b.limit {
		b.used.Add(-bytes)
		return false
	}
	return true
}

// force reserves memory that is taken already. While there is more of that than
// the limit, take reports that there is none.
func (b *budget) force(bytes int64) { b.used.Add(bytes) }

func (b *budget) give(bytes int64) { b.used.Add(-bytes) }
