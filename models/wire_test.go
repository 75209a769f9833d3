package models

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
)

func walk(data pb) message {
	return message{p: &parser{data: data, limits: defaultLimits()}, rest: data}
}

func TestMessageNumbers(t *testing.T) {
	data := pb(nil).int(1, -1).int(1, math.MaxInt64).sub(1, pb{3, 0x80, 0x01}).sub(1, nil)
	var got []int64
	m := walk(data)
	for m.next() {
		m.ints(func(v int64) bool { got = append(got, v); return true })
	}
	if d := cmp.Diff([]int64{-1, math.MaxInt64, 3, 128}, got); d != "" || m.err != nil {
		t.Errorf("%v %s", m.err, d)
	}
}

func TestMessageCount(t *testing.T) {
	single := protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), 1)
	for name, test := range map[string]struct {
		data pb
		typ  protowire.Type
		size int
		want int64
	}{
		"one fixed number":  {single, protowire.Fixed64Type, 8, 1},
		"packed":            {pb(nil).sub(1, make(pb, 24)), protowire.Fixed64Type, 8, 3},
		"packed varints":    {pb(nil).sub(1, pb{1, 0x80, 0x80, 1, 2}), protowire.VarintType, 0, 3},
		"no packed numbers": {pb(nil).sub(1, nil), protowire.Fixed32Type, 4, 0},
	} {
		m := walk(test.data)
		m.next()
		if got := m.count(test.typ, test.size); got != test.want || m.err != nil {
			t.Errorf("%s: %d, %v, want %d", name, got, m.err, test.want)
		}
	}
}

// The first fault stays, and the walk ends there.
func TestMessageFault(t *testing.T) {
	for name, read := range map[string]func(m *message){
		"int":   func(m *message) { m.int() },
		"ints":  func(m *message) { m.ints(func(int64) bool { return true }) },
		"count": func(m *message) { m.count(protowire.VarintType, 0) },
	} {
		m := walk(pb(nil).sub(1, pb{0xff}).int(2, 1))
		m.next()
		read(&m)
		first := m.err
		if first == nil {
			t.Errorf("%s: no fault", name)
		}
		m.int()
		m.body()
		m.name()
		m.once(func([]byte) error { t.Error("read on"); return nil })
		if m.next() || !errors.Is(m.err, first) {
			t.Errorf("%s: went on after %v with %v", name, first, m.err)
		}
	}
}

func TestMessageSkipsUnknownFields(t *testing.T) {
	data := pb(nil).int(900, 7).str(901, "later").int(1, 8).sub(7, pb(nil).str(902, "x"))
	if f := mustParse(t, data); f.IRVersion != 8 {
		t.Errorf("version %d", f.IRVersion)
	}
}

func TestFormatErrorMessage(t *testing.T) {
	err := within(within(refuse(ErrLimit, "too many"), "attribute 1"), "node 2")
	var e *formatError
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	e.Path, e.Offset = "m.onnx", 12
	if got, want := err.Error(), "m.onnx: limit exceeded: node 2: attribute 1: too many (byte 12)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := within(errors.New("other"), "node 2"); err.Error() != "other" {
		t.Errorf("a place was put on a foreign error: %v", err)
	}
}
