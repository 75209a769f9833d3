package rpc

import "google.golang.org/protobuf/encoding/protowire"

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
	1: {1, 1}, 2: {4, 4}, 3: {8, 8}, 4: {4, 4}, 5: {8, 8}, fieldFP32: {4, 4}, fieldFP64: {8, 8}, fieldBytes: {24, stringHead},
}

// Fields of typed contents whose elements are no varints.
const (
	fieldFP32  = 6
	fieldFP64  = 7
	fieldBytes = 8
)

// measureContents returns how much memory typed contents take once they are
// decoded and packed, besides their bytes.
func measureContents(b []byte) (int64, *Fault) {
	bytes := int64(contentsBytes)
	fault := fields(b, func(n protowire.Number, value []byte) *Fault {
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
