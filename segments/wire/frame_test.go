package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/overlapd/overlapd/models"
)

func newMessage(k Kind) Message {
	switch k {
	case KindLoad:
		return &LoadSpec{}
	case KindRun:
		return &Run{}
	case KindRelease:
		return &Release{}
	case KindQuit:
		return &Quit{}
	case KindHello:
		return &Hello{}
	case KindProgress:
		return &Progress{}
	case KindReady:
		return &Info{}
	case KindDone:
		return &Done{}
	case KindFailed:
		return &Failed{}
	case KindMove:
		return &Move{}
	case KindMoved:
		return &Moved{}
	}
	return nil
}

var testTensor = models.Tensor{Type: models.Float32, Shape: []int64{1, 3, 224, 224}, Offset: 4096, Bytes: 602112}

// testMessages has at least one message of every kind.
func testMessages() []Message {
	return []Message{
		&LoadSpec{Service: "resnet50", ModelPath: "/m.onnx", Threads: 2, CutTarget: 9},
		&Run{Round: 7, Batch: 1 << 40, Start: 3, End: 12, Size: 4, Stop: 63, Share: 1},
		&Run{Batch: 1, End: 1, Size: 2, Queries: []QueryTensors{{ID: 5, Inputs: []models.Tensor{testTensor, {Type: models.String}}}, {ID: 6}}},
		&Run{Batch: 1, End: 1, Size: 1, Queries: []QueryTensors{{ID: 5}, {ID: 6}}},
		&Release{Batch: 9},
		&Quit{},
		&Hello{Protocol: ProtocolVersion, PID: 4711},
		&Progress{Phase: "sessions", Done: 3, Total: 58},
		&Info{
			Inputs:    []models.TensorSpec{{Name: "x", Type: models.TensorType(models.Float32, models.Dim{Value: -1, Name: "N"}, models.Dim{Value: 3})}},
			Operators: []models.Operator{{Name: "conv", Type: "Conv+Relu", Nodes: 2, LiveBytes: -1}},
			Hash:      "00ff", ORTVersion: "1.30.0", CacheHit: true, LoadNanos: 5,
		},
		&Done{Round: 7, Batch: 8, Reached: 12, Nanos: 99, DeviceNanos: 90},
		&Done{Round: 1, Outputs: [][]OutputTensor{{{testTensor, 3}, {testTensor, 4}}, {}}},
		&Move{Round: 1, Batch: 2, Start: 3},
		&Move{Start: 3, Step: MoveExport, Cut: 1 << 63, Values: []models.Tensor{testTensor, {Type: models.String}}},
		&Move{Start: 3, Step: MoveImport, Queries: []QueryTensors{{ID: 5, Inputs: []models.Tensor{testTensor}}, {ID: 6}}, Values: []models.Tensor{testTensor}},
		&Moved{Round: 1, Batch: 2, Cut: 3, Values: []models.Tensor{testTensor, testTensor}},
		&Moved{Copied: true},
		Fail(1, 2, ErrMemory),
		Fail(0, 0, errors.New("no such file")),
	}
}

var compareMessages = cmp.Options{cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(Run{}, Done{}, Move{}, Moved{})}

func TestMessagesRoundTrip(t *testing.T) {
	var stream []byte
	for _, m := range testMessages() {
		var err error
		if stream, err = AppendFrame(stream, m); err != nil {
			t.Fatalf("%s: %v", m.Kind(), err)
		}
	}
	// One byte at a time: the reader must put every frame together.
	frames := NewFrameReader(iotest.OneByteReader(bytes.NewReader(stream)))
	for _, want := range testMessages() {
		kind, payload, err := frames.Next()
		if err != nil {
			t.Fatal(err)
		}
		got := newMessage(kind)
		if err := Decode(payload, got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, compareMessages); diff != "" {
			t.Errorf("%s changed:\n%s", kind, diff)
		}
	}
	if _, _, err := frames.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("after the last frame: %v", err)
	}
}

// Every prefix of a payload, and every payload with a byte more, is refused.
func TestDecodeRefusesOtherLengths(t *testing.T) {
	for _, m := range testMessages() {
		payload, err := appendPayload(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		for n := range payload {
			if err := Decode(payload[:n], newMessage(m.Kind())); !errors.Is(err, ErrMessage) {
				t.Errorf("%s with %d of %d bytes: %v", m.Kind(), n, len(payload), err)
			}
		}
		if err := Decode(append(payload, 'x'), newMessage(m.Kind())); !errors.Is(err, ErrMessage) {
			t.Errorf("%s with a byte more: %v", m.Kind(), err)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	bad := map[string]Message{
		"end before start":  &Run{Start: 2, End: 1},
		"negative start":    &Run{Start: -1, End: 1},
		"stop word":         &Run{Start: 1, End: 2, Stop: StopWords},
		"start, no queries": &Run{End: 2},
		"queries in middle": &Run{Start: 1, End: 2, Queries: []QueryTensors{{}}},
		"too many queries":  &Run{End: 1, Queries: make([]QueryTensors, MaxQueries+1)},
		"too many inputs":   &Run{End: 1, Queries: []QueryTensors{{Inputs: make([]models.Tensor, MaxTensors+1)}}},
		"rank":              &Run{End: 1, Queries: []QueryTensors{{Inputs: []models.Tensor{{Shape: make([]int64, MaxRank+1)}}}}},
		"negative dim":      &Run{End: 1, Queries: []QueryTensors{{Inputs: []models.Tensor{{Shape: []int64{-1}}}}}},
		"negative offset":   &Run{End: 1, Queries: []QueryTensors{{Inputs: []models.Tensor{{Offset: -1}}}}},
		"negative time":     &Done{Nanos: -1},
		"negative device":   &Done{DeviceNanos: -1},
		"move at the start": &Move{},
		"step of a move":    &Move{Start: 1, Step: moveSteps},
		"move, no queries":  &Move{Start: 1, Step: MoveImport},
		"queries too early": &Move{Start: 1, Step: MoveExport, Queries: []QueryTensors{{}}},
		"values too early":  &Move{Start: 1, Values: []models.Tensor{testTensor, testTensor}},
		"too many values":   &Moved{Values: make([]models.Tensor, MaxTensors+1)},
		"too many outputs":  &Done{Outputs: [][]OutputTensor{make([]OutputTensor, MaxTensors+1)}},
	}
	for name, m := range bad {
		dst := []byte("before")
		got, err := AppendFrame(dst, m)
		if !errors.Is(err, ErrMessage) || string(got) != "before" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	huge := &LoadSpec{Service: strings.Repeat("x", MaxFrameBytes)}
	if _, err := AppendFrame(nil, huge); !errors.Is(err, ErrFrameSize) {
		t.Errorf("huge frame: %v", err)
	}
}

func TestFailedCarriesItsError(t *testing.T) {
	for _, sentinel := range failures {
		if err := Fail(1, 2, sentinel).Err(); !errors.Is(err, sentinel) {
			t.Errorf("%v: %v", sentinel, err)
		}
	}
	if !errors.Is(Fail(1, 2, io.EOF).Err(), ErrEngine) || !errors.Is((&Failed{Code: 200}).Err(), ErrEngine) {
		t.Error("what has no code must be a failure of the engine")
	}
	long, err := AppendFrame(nil, Fail(1, 2, errors.New(strings.Repeat("é", maxMessageBytes))))
	if err != nil || len(long) > maxMessageBytes+64 {
		t.Errorf("long message: %d bytes, %v", len(long), err)
	}
}

func TestFrameReaderLimits(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		want   error
	}{
		"empty":         {"", io.EOF},
		"half a header": {"\x01\x00", io.ErrUnexpectedEOF},
		"half a frame":  {"\x05\x00\x00\x00\x03abc", io.ErrUnexpectedEOF},
		"size zero":     {"\x00\x00\x00\x00\x03", ErrFrameSize},
		"size above":    {"\x01\x00\x00\x01\x03", ErrFrameSize},
		"size 4 GiB":    {"\xff\xff\xff\xff\x03", ErrFrameSize},
	} {
		if _, _, err := NewFrameReader(strings.NewReader(c.stream)).Next(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFrameReaderGivesMemoryBack(t *testing.T) {
	var stream []byte
	for _, n := range []int{10, 4 * readBufferBytes, 10, 10} {
		stream, _ = AppendFrame(stream, &LoadSpec{Service: strings.Repeat("x", n)})
	}
	frames := NewFrameReader(bytes.NewReader(stream))
	for {
		kind, payload, err := frames.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || kind != KindLoad {
			t.Fatal(kind, err)
		}
		var m LoadSpec
		if err := Decode(payload, &m); err != nil {
			t.Fatal(err)
		}
	}
	if frames.r.Size() != readBufferBytes {
		t.Errorf("%d bytes of buffer are kept", frames.r.Size())
	}
}

func TestHotMessagesDoNotAllocate(t *testing.T) {
	run := &Run{Batch: 1, End: 1, Size: 1, Queries: []QueryTensors{{ID: 1, Inputs: []models.Tensor{testTensor}}}}
	done := &Done{Outputs: [][]OutputTensor{{{testTensor, 1}}}}
	buf := make([]byte, 0, 4096)
	for _, m := range []Message{run, done} {
		into := newMessage(m.Kind())
		n := testing.AllocsPerRun(100, func() {
			frame, err := AppendFrame(buf[:0], m)
			if err != nil {
				t.Fatal(err)
			}
			if err := Decode(frame[frameHeaderBytes:], into); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", m.Kind(), n)
		}
	}
}

// FuzzWire feeds a stream to both ends: whatever decodes must encode to the
// same again.
func FuzzWire(f *testing.F) {
	for _, m := range testMessages() {
		frame, _ := AppendFrame(nil, m)
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		frames := NewFrameReader(bytes.NewReader(stream))
		for {
			kind, payload, err := frames.Next()
			if err != nil {
				return
			}
			if m := newMessage(kind); m != nil && Decode(payload, m) == nil {
				checkCanonical(t, m, payload)
			}
		}
	})
}

func checkCanonical(t *testing.T, m Message, payload []byte) {
	first, err := appendPayload(nil, m)
	if err != nil {
		t.Fatalf("%s was decoded but cannot be encoded: %v", m.Kind(), err)
	}
	switch m.Kind() {
	case KindRun, KindDone, KindMove, KindMoved:
		if !bytes.Equal(first, payload) {
			t.Fatalf("%s has two forms", m.Kind())
		}
	default: // texts are made valid on the way
		again := newMessage(m.Kind())
		if err := Decode(first, again); err != nil {
			t.Fatalf("%s: %v", m.Kind(), err)
		}
		if second, _ := appendPayload(nil, again); !bytes.Equal(first, second) {
			t.Fatalf("%s changes with every turn", m.Kind())
		}
	}
}

// FuzzMessage gives the fuzzer each decoder without the frame around it.
func FuzzMessage(f *testing.F) {
	for _, m := range testMessages() {
		payload, _ := appendPayload(nil, m)
		f.Add(uint8(m.Kind()), payload)
	}
	f.Fuzz(func(t *testing.T, kind uint8, payload []byte) {
		if m := newMessage(Kind(kind)); m != nil && Decode(payload, m) == nil {
			checkCanonical(t, m, payload)
		}
	})
}
