package rpc

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// Limits on one request, besides its bytes.
const (
	maxTensors    = 256 // inputs, outputs asked for
	maxShapeBytes = 128 // the encoded dimensions of an input
)

var (
	errStreams   = query.Unavailable(query.ReasonNoMemory, "the streams that are open hold all memory there is for them (half of limits.memory_bytes): close some")
	errMalformed = query.Invalid("the message is not one of the protocol")
)

// unmarshal drops fields that the protocol does not have: none is passed on.
var unmarshal = proto.UnmarshalOptions{DiscardUnknown: true}

// message is a request as it is received. What is wrong with it is kept, not
// returned: gRPC would call it a fault of the server.
type message struct {
	request inference.ModelInferRequest
	fault   *query.Error
	memory  *query.Budget // budget that held was taken from
	held    int64
}

// release gives the memory of the request back.
func (m *message) release() {
	if m.held > 0 {
		m.memory.Give(m.held)
		m.held = 0
	}
}

func (m *message) decode(b []byte, memory *query.Budget) {
	bytes, fault := measure(b)
	if fault != nil {
		m.fault = fault
		return
	}
	if !memory.Take(bytes) {
		m.fault = query.ErrBodyMemory
		return
	}
	m.memory, m.held = memory, bytes
	if err := unmarshal.Unmarshal(b, &m.request); err != nil {
		m.fault = errMalformed
	}
}

// Numbers of the fields that are counted.
const (
	fieldParameters = 4 // in the request, and in an input
	fieldInputs     = 5
	fieldOutputs    = 6
	fieldRaw        = 7

	fieldShape            = 3 // in an input
	fieldContents         = 5
	fieldOutputParameters = 2 // in an output
)

// measure returns how much memory a request takes once it is decoded, at
// most, or refuses it for having too many parts.
func measure(b []byte) (int64, *query.Error) {
	var inputs, outputs, raw, parameters int
	bytes := int64(len(b))
	fault := fields(b, func(n protowire.Number, value []byte) (fault *query.Error) {
		var made int64
		switch n {
		case fieldParameters:
			parameters++
			made = parameterBytes
		case fieldRaw:
			raw++
			made = rawBytes
		case fieldInputs:
			inputs++
			made, fault = measureInput(value)
		case fieldOutputs:
			outputs++
			made, fault = measureOutput(value)
		}
		bytes += made
		return fault
	})
	switch {
	case fault != nil:
		return 0, fault
	case max(inputs, outputs, raw) > maxTensors:
		return 0, query.Invalid("the request has %d inputs, %d outputs and %d raw contents; the limit is %d of each", inputs, outputs, raw, maxTensors)
	case parameters > query.MaxParameters:
		return 0, query.Invalid("the request has %d parameters, the limit is %d", parameters, query.MaxParameters)
	}
	return bytes, nil
}

// measureInput returns how much memory an input takes besides its bytes.
func measureInput(b []byte) (made int64, fault *query.Error) {
	var parameters, shape int
	fault = fields(b, func(n protowire.Number, value []byte) (fault *query.Error) {
		switch n {
		case fieldParameters:
			parameters++
		case fieldShape:
			shape += 1 + len(value)
		case fieldContents:
			var typed int64
			typed, fault = measureContents(value)
			made += typed
		}
		return fault
	})
	switch {
	case fault != nil:
		return 0, fault
	case parameters > query.MaxParameters:
		return 0, query.Invalid("an input has %d parameters, the limit is %d", parameters, query.MaxParameters)
	case shape > maxShapeBytes:
		return 0, query.Invalid("the shape of an input has too many dimensions")
	}
	return made + tensorBytes + int64(shape)*dimensionBytes + int64(parameters)*parameterBytes, nil
}

// measureOutput returns how much memory an output that is asked for takes
// besides its bytes.
func measureOutput(b []byte) (int64, *query.Error) {
	parameters := 0
	fault := fields(b, func(n protowire.Number, _ []byte) *query.Error {
		if n == fieldOutputParameters {
			parameters++
		}
		return nil
	})
	if fault == nil && parameters > query.MaxParameters {
		return 0, query.Invalid("an output has %d parameters, the limit is %d", parameters, query.MaxParameters)
	}
	return tensorBytes + int64(parameters)*parameterBytes, fault
}

// fields calls field for each field of a message; value is nil for one that is
// not bytes.
func fields(b []byte, field func(n protowire.Number, value []byte) *query.Error) *query.Error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		var value []byte
		if kind == protowire.BytesType {
			value, n = protowire.ConsumeBytes(b)
		} else {
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return errMalformed
		}
		if fault := field(number, value); fault != nil {
			return fault
		}
		b = b[n:]
	}
	return nil
}

// Memory that decoding takes for what hardly has bytes on the wire, at most.
const (
	tensorBytes    = 512 // an input or output
	parameterBytes = 384
	rawBytes       = 64 // raw contents
	contentsBytes  = 512
	dimensionBytes = 16

	// slack is how much larger the array behind a slice may be than what was
	// appended to it.
	slack = 2

	// roundingBytes is what the smallest string of a tensor takes besides its
	// bytes.
	roundingBytes = 16
)

// element is the memory of one element of a field of typed contents: that of
// decoded contents, and that of the packed tensor which is made of them.
type element struct{ decoded, packed int64 }

// elements are those of the fields of typed contents. An element of INT64 may
// have one byte on the wire, an empty one of BYTES has two.
var elements = map[protowire.Number]element{
	1: {1, 1}, 2: {4, 4}, 3: {8, 8}, 4: {4, 4}, 5: {8, 8}, fieldFP32: {4, 4}, fieldFP64: {8, 8}, fieldBytes: {24, query.StringHead},
}

// Fields of typed contents whose elements are no varints.
const (
	fieldFP32  = 6
	fieldFP64  = 7
	fieldBytes = 8
)

// measureContents returns how much memory typed contents take once they are
// decoded and packed, besides their bytes.
func measureContents(b []byte) (int64, *query.Error) {
	bytes := int64(contentsBytes)
	fault := fields(b, func(n protowire.Number, value []byte) *query.Error {
		e := elements[n]
		count := int64(1)
		switch {
		case n == fieldBytes:
			bytes += 2*int64(len(value)) + roundingBytes
		case value != nil:
			count = packedElements(n, value)
		}
		bytes += count * (slack*e.decoded + e.packed)
		return nil
	})
	return bytes, fault
}

// packedElements returns how many elements are packed into the bytes of a field.
func packedElements(n protowire.Number, b []byte) (count int64) {
	switch n {
	case fieldFP32:
		return int64(len(b)) / 4
	case fieldFP64:
		return int64(len(b)) / 8
	}
	for _, c := range b {
		if c < 0x80 { // a varint ends
			count++
		}
	}
	return count
}
