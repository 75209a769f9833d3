package perfetto

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestWriter(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out)
	w.NameDevice(3, `a "device"`)
	w.NameRow(3, 1, "rounds")
	w.Slice(Event{Name: "round 1", Kind: "round", At: 1500 * time.Nanosecond, Device: 3, Row: 1, Args: map[string]any{"spans": 2}}, 2*time.Microsecond)
	w.Instant(Event{Name: "deadline", Kind: "instant", At: time.Millisecond, Device: 3, Row: 1})
	w.Range(Event{Name: "query", Kind: "query", At: 1, Device: 3, Row: 1, Args: map[string]any{"size": 4}}, "7", time.Microsecond)
	w.Flow(Event{Name: "query 7", Kind: "arrival", At: time.Microsecond, Device: 3, Row: 1}, Event{Name: "?", At: 2 * time.Microsecond, Device: 3, Row: 2}, "7")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	const want = `{"displayTimeUnit":"ms","traceEvents":[
{"name":"process_name","ph":"M","ts":0,"pid":3,"tid":0,"args":{"name":"a \"device\""}},
{"name":"thread_name","ph":"M","ts":0,"pid":3,"tid":1,"args":{"name":"rounds"}},
{"name":"thread_sort_index","ph":"M","ts":0,"pid":3,"tid":1,"args":{"sort_index":1}},
{"name":"round 1","cat":"round","ph":"X","ts":1.5,"dur":2,"pid":3,"tid":1,"args":{"spans":2}},
{"name":"deadline","cat":"instant","ph":"i","ts":1000,"s":"t","pid":3,"tid":1},
{"name":"query","cat":"query","ph":"b","ts":0.001,"id":"7","pid":3,"tid":1,"args":{"size":4}},
{"name":"query","cat":"query","ph":"e","ts":1,"id":"7","pid":3,"tid":1},
{"name":"query 7","cat":"arrival","ph":"s","ts":1,"id":"7","pid":3,"tid":1},
{"name":"query 7","cat":"arrival","ph":"f","ts":2,"id":"7","bp":"e","pid":3,"tid":2}
]}
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}

func TestStampsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(100*24*time.Hour)).Draw(t, "time")) / time.Duration(rapid.SampledFrom([]int{1, 1000, 1e6, 1e9}).Draw(t, "unit"))
		if got := time.Duration(stamp(d) * 1000); got != d {
			t.Errorf("%d is read as %d", d, got)
		}
	})
}

// full is a file that takes nothing.
type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestErrorsStay(t *testing.T) {
	w := NewWriter(full{})
	for range 1000 {
		w.Instant(Event{Name: "something that does not fit into a buffer for ever"})
	}
	if err := w.Close(); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
	w = NewWriter(new(bytes.Buffer))
	w.Instant(Event{Args: map[string]any{"never": func() {}}})
	if err := w.Close(); err == nil {
		t.Error("what JSON does not know is written")
	}
}

func TestEventsAreLimited(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out)
	w.events = MaxEvents - 1
	w.Range(Event{Name: "over"}, "1", 1)
	w.Flow(Event{Name: "over"}, Event{Name: "over"}, "1")
	w.Instant(Event{Name: "last"})
	w.Instant(Event{Name: "over"})
	if err := w.Close(); err != nil || bytes.Contains(out.Bytes(), []byte("over")) || !bytes.Contains(out.Bytes(), []byte("last")) {
		t.Errorf("closing: %v; want the last event and none that is over: %s", err, out.String())
	}
}
