package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
)

func info(change func(*Info)) *Info {
	m := &Info{Operators: make([]models.Operator, 2), Hash: "00", Cut: &CutChoice{Reason: "it is"}, Solo: []Solo{{Nanos: []int64{1, 2}}}}
	change(m)
	return m
}

// What a worker says while it loads has a limit in every part.
func TestDecodeRefusesTooMuch(t *testing.T) {
	long := strings.Repeat("x", maxLabelBytes+1)
	for name, m := range map[string]Message{
		"phase":          &Progress{Phase: long},
		"negative done":  &Progress{Done: -1},
		"negative total": &Progress{Total: -1},
		"no operators":   info(func(i *Info) { i.Operators, i.Solo = nil, nil }),
		"inputs":         info(func(i *Info) { i.Inputs = make([]models.TensorSpec, MaxTensors+1) }),
		"outputs":        info(func(i *Info) { i.Outputs = make([]models.TensorSpec, MaxTensors+1) }),
		"rank": info(func(i *Info) {
			i.Inputs = []models.TensorSpec{{Type: models.Type{Shape: make([]models.Dim, MaxRank+1)}}}
		}),
		"time":          info(func(i *Info) { i.LoadNanos = -1 }),
		"hash":          info(func(i *Info) { i.Hash = long }),
		"version":       info(func(i *Info) { i.ORTVersion = long }),
		"device":        info(func(i *Info) { i.Device = long }),
		"hash of a cut": info(func(i *Info) { i.Cut.Hash = long }),
		"times":         info(func(i *Info) { i.Solo[0].Nanos = []int64{1} }),
		"elements":      info(func(i *Info) { i.Solo[0].Nanos = make([]int64, maxElements+2) }),
	} {
		payload, err := appendPayload(nil, m)
		if err != nil {
			t.Fatal(name, err)
		}
		if err := Decode(payload, newMessage(m.Kind())); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fair := info(func(*Info) {})
	payload, _ := appendPayload(nil, fair)
	if err := Decode(payload, &Info{}); err != nil {
		t.Error(err)
	}
}

// A note is refused before memory is spent on it, and its text is cut.
func TestNotesAreBounded(t *testing.T) {
	for _, k := range []Kind{KindHello, KindProgress, KindFailed} {
		payload := []byte(`{"x":"` + strings.Repeat("y", maxNoteBytes) + `"}`)
		if err := Decode(payload, newMessage(k)); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", k, err)
		}
	}
	payload, _ := json.Marshal(map[string]string{"message": strings.Repeat("y", 2*maxMessageBytes)})
	var failed Failed
	if err := Decode(payload, &failed); err != nil || len(failed.Err().Error()) > maxMessageBytes+len(ErrEngine.Error())+2 {
		t.Errorf("%d bytes, %v", len(failed.Err().Error()), err)
	}
	cut := info(func(i *Info) { i.Cut.Reason = strings.Repeat("y", 2*maxMessageBytes) })
	payload, _ = appendPayload(nil, cut)
	var ready Info
	if err := Decode(payload, &ready); err != nil || len(ready.Cut.Reason) > maxMessageBytes {
		t.Errorf("%v", err)
	}
}
