// Package wire is what the daemon and a worker share: the protocol that they speak
// over a socket, and the memory in which tensors lie. It has both ends of each. The
// daemon's ends of the memory are [InputArena] and [Outputs]; the worker's are
// [MapArena] and [WorkerOutputs]. [AppendFrame] and [FrameReader] frame the messages.
//
// The package needs no cgo and starts no goroutines. Packages executor and daemon
// import it, and so do the worker's loop and its engine.
//
// The daemon does not trust a worker: decoders bound every field, and an output is
// checked before it is read.
package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The wire protocol between the daemon and a worker is a stream of frames. A frame
// consists of a length, in four little-endian bytes that count everything after
// them; one byte for the kind; and the payload. Run, Move and their answers have
// fixed little-endian fields, because they are on the path of queries. All other
// messages are JSON.

// ProtocolVersion is the version on which both ends must agree. Both are the same
// binary, so a mismatch means that the file was replaced under a running daemon.
const ProtocolVersion = 11

// Limits of the protocol. A decoder rejects messages that exceed them.
const (
	// MaxFrameBytes limits the kind and payload of a frame.
	MaxFrameBytes = 16 << 20

	// maxUnits limits the units of a device, and thus the runs of a worker at once.
	maxUnits = 1 << 10

	// MaxQueries limits the queries of a batch.
	MaxQueries = 1 << 14

	// MaxTensors limits the inputs or outputs of a query.
	MaxTensors = 1 << 10

	// MaxRank limits the dimensions of a tensor.
	MaxRank = 64

	// frameHeaderBytes is the size of the length and the kind.
	frameHeaderBytes = 5

	// readBufferBytes is the size of a reader's buffer. A larger frame gets memory
	// of its own.
	readBufferBytes = 64 << 10
)

// Errors of the wire protocol.
var (
	// ErrFrameSize is returned if the length of a frame is zero or exceeds
	// MaxFrameBytes, on reading and on writing.
	ErrFrameSize = errors.New("segments: frame size out of bounds")

	// ErrMessage is returned if a payload does not match its kind: it is too short
	// or too long, or has a field out of bounds.
	ErrMessage = errors.New("segments: malformed message")

	// ErrUnexpectedKind is returned if a message of this kind is not allowed at this
	// point of the conversation, or in this direction.
	ErrUnexpectedKind = errors.New("segments: unexpected message")
)

// Kind is the kind of message that a frame holds.
type Kind uint8

// Messages from the daemon to a worker.
const (
	KindLoad Kind = 1 + iota
	KindRun
	KindRelease
	KindQuit
	KindMove
)

// Messages from a worker to the daemon.
const (
	KindHello Kind = 65 + iota
	KindProgress
	KindReady
	KindDone
	KindFailed
	KindMoved
)

// Kind implements Message.
func (*LoadSpec) Kind() Kind { return KindLoad }
func (*Run) Kind() Kind      { return KindRun }
func (*Release) Kind() Kind  { return KindRelease }
func (*Quit) Kind() Kind     { return KindQuit }
func (*Hello) Kind() Kind    { return KindHello }
func (*Progress) Kind() Kind { return KindProgress }
func (*Info) Kind() Kind     { return KindReady }
func (*Done) Kind() Kind     { return KindDone }
func (*Failed) Kind() Kind   { return KindFailed }
func (*Move) Kind() Kind     { return KindMove }
func (*Moved) Kind() Kind    { return KindMoved }

var kindNames = map[Kind]string{
	KindLoad: "load", KindRun: "run", KindRelease: "release", KindQuit: "quit",
	KindHello: "hello", KindProgress: "progress", KindReady: "ready",
	KindDone: "done", KindFailed: "failed", KindMove: "move", KindMoved: "moved",
}

func (k Kind) String() string {
	if name, ok := kindNames[k]; ok {
		return name
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Message is the content of one frame.
type Message interface{ Kind() Kind }

// fixed is a message of fixed fields. Its decode copies what it keeps, and may reuse
// memory from an earlier call.
type fixed interface {
	appendPayload(dst []byte) ([]byte, error)
	decode(payload []byte) error
}

// Decode decodes payload into m. A JSON message must be empty before that.
//
// Messages that a worker sends while loading end up in the daemon's log, its state
// and its keys. They may come from a process that a malicious model has taken over,
// so each part of them has a limit.
func Decode(payload []byte, m Message) error {
	if m, ok := m.(fixed); ok {
		return m.decode(payload)
	}
	k := m.Kind()
	if k != KindLoad && k != KindReady && len(payload) > maxNoteBytes {
		return fmt.Errorf("%w: %s of %d bytes, the limit is %d", ErrMessage, k, len(payload), maxNoteBytes)
	}
	if n := bytes.Count(payload, []byte{','}); n > maxElements {
		return fmt.Errorf("%w: %s of %d elements, the limit is %d", ErrMessage, k, n, maxElements)
	}
	if err := json.Unmarshal(payload, m); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMessage, k, err)
	}
	if m, ok := m.(interface{ check() error }); ok {
		return m.check()
	}
	return nil
}

func appendPayload(dst []byte, m Message) ([]byte, error) {
	if m, ok := m.(fixed); ok {
		return m.appendPayload(dst)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return append(dst, text...), nil
}

// AppendFrame appends m as one frame to dst. If it fails, it returns dst unchanged.
func AppendFrame(dst []byte, m Message) ([]byte, error) {
	start := len(dst)
	framed := append(dst, 0, 0, 0, 0, byte(m.Kind()))
	framed, err := appendPayload(framed, m)
	if err != nil {
		return dst, err
	}
	size := len(framed) - start - 4
	if size > MaxFrameBytes {
		return dst, fmt.Errorf("%w: %s of %d bytes", ErrFrameSize, m.Kind(), size)
	}
	binary.LittleEndian.PutUint32(framed[start:], uint32(size))
	return framed, nil
}

// FrameReader splits a stream into frames. It reads as much as is available at a
// time, so several queued frames cost one system call.
type FrameReader struct {
	r *bufio.Reader

	// last is how many buffered bytes the last frame occupies. Next discards them.
	last int
}

// NewFrameReader returns a reader of the frames in r.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: bufio.NewReaderSize(r, readBufferBytes)}
}

// Next returns the next frame. Its payload is valid until the next call. The error
// is io.EOF only if the stream ends between two frames.
func (f *FrameReader) Next() (Kind, []byte, error) {
	_, _ = f.r.Discard(f.last) // cannot fail: they are buffered
	f.last = 0
	frame, err := f.r.Peek(frameHeaderBytes)
	if err == nil {
		frame, err = f.whole(int64(binary.LittleEndian.Uint32(frame)))
	}
	switch {
	case err == io.EOF && len(frame) > 0:
		return 0, nil, io.ErrUnexpectedEOF
	case err != nil:
		return 0, nil, err
	}
	return Kind(frame[4]), frame[frameHeaderBytes:], nil
}

// whole returns the frame of the given size, in the reader's buffer if it fits, else
// in memory of its own.
func (f *FrameReader) whole(size int64) (frame []byte, err error) {
	if size == 0 || size > MaxFrameBytes {
		return nil, fmt.Errorf("%w: %d bytes", ErrFrameSize, size)
	}
	if 4+size <= readBufferBytes {
		f.last = int(4 + size)
		return f.r.Peek(f.last)
	}
	frame = make([]byte, 4+size)
	n, err := io.ReadFull(f.r, frame)
	return frame[:n], err
}
