// Package wire is what the daemon and a worker share: the protocol that they
// speak over a socket and the memory that tensors lie in, with both ends of each.
// The daemon's ends are [InputArena] and [Outputs], the worker's are [MapInputs]
// and [WorkerOutputs]; messages are framed by [AppendFrame] and [FrameReader].
// Packages executor and daemon import it, and so do the loop of a worker and its
// engine. It needs no cgo and runs nothing.
//
// Nothing that a worker says is believed: decoders bound every field, and an
// output is checked before it is read.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The wire protocol between the daemon and a worker is a stream of frames: a
// length of four bytes, little-endian, that counts what follows it; one byte
// for the kind; the payload. Messages of the hot path are fixed little-endian
// fields, those of the start are JSON.

// ProtocolVersion is what both ends must agree on. They are the same binary,
// so a difference means that the file was replaced under a running daemon.
const ProtocolVersion = 3

// Limits of the protocol. A decoder refuses what exceeds them.
const (
	// MaxFrameBytes limits kind and payload of a frame, MaxQueries the queries of a
	// batch, MaxTensors the inputs or outputs of a query, MaxRank the dimensions of
	// a tensor.
	MaxFrameBytes = 16 << 20
	MaxQueries    = 1 << 14
	MaxTensors    = 1 << 10
	MaxRank       = 64

	// maxMessageBytes is the length to which the text of a failure is cut.
	maxMessageBytes = 16 << 10

	// frameHeaderBytes is the size of length and kind.
	frameHeaderBytes = 5

	// readBufferBytes is the size of a buffer at first, and again after a large
	// frame.
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
)

// Messages from a worker to the daemon.
const (
	KindHello Kind = 65 + iota
	KindProgress
	KindReady
	KindDone
	KindFailed
	KindLoadFailed
)

// Kind implements Message.
func (*LoadSpec) Kind() Kind   { return KindLoad }
func (*Run) Kind() Kind        { return KindRun }
func (*Release) Kind() Kind    { return KindRelease }
func (*Quit) Kind() Kind       { return KindQuit }
func (*Hello) Kind() Kind      { return KindHello }
func (*Progress) Kind() Kind   { return KindProgress }
func (*Info) Kind() Kind       { return KindReady }
func (*Done) Kind() Kind       { return KindDone }
func (*Failed) Kind() Kind     { return KindFailed }
func (*LoadFailed) Kind() Kind { return KindLoadFailed }

var kindNames = map[Kind]string{
	KindLoad: "load", KindRun: "run", KindRelease: "release", KindQuit: "quit",
	KindHello: "hello", KindProgress: "progress", KindReady: "ready",
	KindDone: "done", KindFailed: "failed", KindLoadFailed: "load failed",
}

func (k Kind) String() string {
	if name, ok := kindNames[k]; ok {
		return name
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Message is the content of one frame.
type Message interface {
	Kind() Kind
	// Decode replaces the message with what payload holds. It copies what it
	// keeps and may reuse the memory of an earlier call.
	Decode(payload []byte) error
	appendPayload(dst []byte) ([]byte, error)
}

// AppendFrame appends m as one frame to dst. After an error dst is as it was.
func AppendFrame(dst []byte, m Message) ([]byte, error) {
	start := len(dst)
	framed := append(dst, 0, 0, 0, 0, byte(m.Kind()))
	framed, err := m.appendPayload(framed)
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
// at once, so several queued frames cost one system call. Of buf, [start, end) is read
// and not yet returned.
type FrameReader struct {
	r          io.Reader
	buf        []byte
	start, end int
}

// NewFrameReader returns a reader of the frames in r.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: r, buf: make([]byte, readBufferBytes)}
}

// Next returns the next frame. Its payload stays valid until the next call.
// The error is io.EOF only if the stream ends between two frames.
func (f *FrameReader) Next() (Kind, []byte, error) {
	if err := f.fill(frameHeaderBytes); err != nil {
		return 0, nil, err
	}
	size := binary.LittleEndian.Uint32(f.buf[f.start:])
	if size == 0 || size > MaxFrameBytes {
		return 0, nil, fmt.Errorf("%w: %d bytes", ErrFrameSize, size)
	}
	if err := f.fill(4 + int(size)); err != nil {
		return 0, nil, err
	}
	frame := f.buf[f.start : f.start+4+int(size)]
	f.start += len(frame)
	return Kind(frame[4]), frame[frameHeaderBytes:], nil
}

// fill reads until n bytes are buffered.
func (f *FrameReader) fill(n int) error {
	f.makeRoom(n)
	for f.end-f.start < n {
		got, err := f.r.Read(f.buf[f.end:])
		f.end += got
		switch {
		case f.end-f.start >= n:
		case err == io.EOF && f.end > f.start:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
	return nil
}

// makeRoom makes n bytes fit behind start.
func (f *FrameReader) makeRoom(n int) {
	if f.start == f.end {
		f.start, f.end = 0, 0
		if len(f.buf) > readBufferBytes && n <= readBufferBytes {
			f.buf = make([]byte, readBufferBytes)
		}
	}
	if f.start+n <= len(f.buf) {
		return
	}
	target := f.buf
	if n > len(f.buf) {
		target = make([]byte, n)
	}
	f.end = copy(target, f.buf[f.start:f.end])
	f.start, f.buf = 0, target
}
