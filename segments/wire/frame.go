// Package wire is what the daemon and a worker share: the protocol that they
// speak over a socket and the memory that tensors lie in, with both ends of each.
// The daemon's ends are [InputArena] and [Outputs], the worker's are [MapInputs], [MapMoves]
// and [WorkerOutputs]; messages are framed by [AppendFrame] and [FrameReader].
// Packages executor and daemon import it, and so do the loop of a worker and its
// engine. It needs no cgo and runs nothing.
//
// Nothing that a worker says is believed: decoders bound every field, and an
// output is checked before it is read.
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

// The wire protocol between the daemon and a worker is a stream of frames: a
// length of four bytes, little-endian, that counts what follows it; one byte
// for the kind; the payload. A Run, a Move and their answers are fixed little-endian
// fields, all other messages are JSON.

// ProtocolVersion is what both ends must agree on. They are the same binary,
// so a difference means that the file was replaced under a running daemon.
const ProtocolVersion = 8

// Limits of the protocol. A decoder refuses what exceeds them.
const (
	// MaxFrameBytes limits kind and payload of a frame, MaxQueries the queries of a
	// batch, MaxTensors the inputs or outputs of a query, MaxRank the dimensions of
	// a tensor.
	MaxFrameBytes = 16 << 20
	MaxQueries    = 1 << 14
	MaxTensors    = 1 << 10
	MaxRank       = 64

	// frameHeaderBytes is the size of length and kind.
	frameHeaderBytes = 5

	// readBufferBytes is the size of a reader's buffer; a larger frame has memory
	// of its own.
	readBufferBytes = 64 << 10
)

// Errors of the wire protocol.
var (
	// ErrFrameSize is returned when the length of a frame is zero or exceeds
	// MaxFrameBytes, read or written.
	ErrFrameSize = errors.New("segments: frame size out of bounds")

	// ErrMessage is returned when a payload is not what its kind promises:
	// too short, too long, or with a field out of bounds.
	ErrMessage = errors.New("segments: malformed message")

	// ErrUnexpectedKind is returned when a frame of this kind has no place in
	// the conversation at this moment, or in this direction.
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

// fixed is a message of fixed fields. Its decode copies what it keeps and may
// reuse the memory of an earlier call.
type fixed interface {
	appendPayload(dst []byte) ([]byte, error)
	decode(payload []byte) error
}

// Decode replaces m, which is empty if it is of JSON, with what payload holds.
//
// The messages of a worker that loads go into the daemon's log, its state and its
// keys, and may come from a process that a foreign model has taken over: each part
// of them has a limit.
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

// AppendFrame appends m as one frame to dst. After an error dst is as it was.
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

// FrameReader splits a stream into frames. It reads as much as the stream has
// at once, so several queued frames cost one system call.
type FrameReader struct {
	r    *bufio.Reader
	last int // bytes of r that the last frame lies in
}

// NewFrameReader returns a reader of the frames in r.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: bufio.NewReaderSize(r, readBufferBytes)}
}

// Next returns the next frame. Its payload stays valid until the next call.
// The error is io.EOF only if the stream ends between two frames.
func (f *FrameReader) Next() (Kind, []byte, error) {
	_, _ = f.r.Discard(f.last) // they are buffered
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

// whole returns the frame of this size: where it is buffered, or in memory of its own
// if it is large.
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
