package rpc

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// Limits on one request, besides its bytes.
const (
	maxTensors    = 256 // inputs, outputs asked for
	maxParameters = 64  // of the request, and of each tensor
	maxShapeBytes = 128 // of the dimensions of an input, encoded
)

// message is a request as it is received. What is wrong with it is kept, not
// returned: gRPC would call it a fault of the server.
type message struct {
	request inference.ModelInferRequest
	fault   *Fault
	held    int64 // of the server's memory
}

func (m *message) decode(b []byte, memory *budget) {
	bytes, fault := measure(b)
	if fault != nil {
		m.fault = fault
		return
	}
	if !memory.take(bytes) {
		m.fault = errMemory
		return
	}
	m.held = bytes
	if err := unmarshal.Unmarshal(b, &m.request); err != nil {
		m.fault = errMalformed
	}
}

// Numbers of the fields that are counted.
const (
	fieldParameters = 4 // of the request, and of an input
	fieldInputs     = 5
	fieldOutputs    = 6
	fieldRaw        = 7

	fieldShape            = 3 // of an input
	fieldContents         = 5
	fieldOutputParameters = 2 // of an output
)

// measure returns how much memory a request takes once it is decoded, at
// most, or refuses it for having too many parts.
func measure(b []byte) (int64, *Fault) {
	var inputs, outputs, raw, parameters int
	bytes := int64(len(b))
	fault := fields(b, func(n protowire.Number, value []byte) (fault *Fault) {
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
		return 0, invalid("the request has %d inputs, %d outputs and %d raw contents; the limit is %d of each", inputs, outputs, raw, maxTensors)
	case parameters > maxParameters:
		return 0, invalid("the request has %d parameters, the limit is %d", parameters, maxParameters)
	}
	return bytes, nil
}

// measureInput returns how much memory an input takes besides its bytes.
func measureInput(b []byte) (made int64, fault *Fault) {
	var parameters, shape int
	fault = fields(b, func(n protowire.Number, value []byte) (fault *Fault) {
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
	case parameters > maxParameters:
		return 0, invalid("an input has %d parameters, the limit is %d", parameters, maxParameters)
	case shape > maxShapeBytes:
		return 0, invalid("the shape of an input has too many dimensions")
	}
	return made + tensorBytes + int64(shape)*dimensionBytes + int64(parameters)*parameterBytes, nil
}

// measureOutput returns how much memory an output that is asked for takes
// besides its bytes.
func measureOutput(b []byte) (int64, *Fault) {
	parameters := 0
	fault := fields(b, func(n protowire.Number, _ []byte) *Fault {
		if n == fieldOutputParameters {
			parameters++
		}
		return nil
	})
	if fault == nil && parameters > maxParameters {
		return 0, invalid("an output has %d parameters, the limit is %d", parameters, maxParameters)
	}
	return tensorBytes + int64(parameters)*parameterBytes, fault
}

// fields calls field for each field of a message; value is nil for one that is
// not bytes.
func fields(b []byte, field func(n protowire.Number, value []byte) *Fault) *Fault {
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
