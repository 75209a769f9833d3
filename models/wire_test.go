package models

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func walk(data pb) message {
	return message{p: &parser{data: data, limits: defaultLimits()}, rest: data}
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
