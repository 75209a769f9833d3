package journal

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

func TestReaderRefuses(t *testing.T) {
	text := string(recorded(t, testConfig("edf", 2, 1), 1, 30))
	lines := strings.SplitAfter(text, "\n")
	header, rest := lines[0], strings.Join(lines[1:], "")
	for name, c := range map[string]struct {
		text string
		line int
		says string
	}{
		"empty":             {"", 1, "no whole line; " + notALog},
		"no text":           {"\x00\x01\n", 1, "not a decision log"},
		"torn header":       {header[:20], 1, "no whole line"},
		"other JSON":        {"{\"a\":1}\n", 1, "overlapd-decisions/8"},
		"a predictor":       {`{"format":"overlapd-predictor/1"}` + "\n", 1, "overlapd-predictor/1"},
		"an older version":  {`{"format":"overlapd-decisions/6"}` + "\n", 1, `"6"; ` + another},
		"a later version":   {`{"format":"overlapd-decisions/9"}` + "\n", 1, `"9"`},
		"unknown field":     {strings.Replace(header, `"commit"`, `"comit"`, 1), 1, "comit"},
		"no header":         {rest, 1, "not a decision log"},
		"no state":          {`{"format":"` + Format + `"}` + "\n", 1, "no state; " + damaged},
		"other services":    {strings.Replace(header, `"Services":[{`, `"Services":[{},{`, 1), 1, "0 operators"},
		"bad policy":        {strings.Replace(header, `"edf"`, `"best"`, 1), 1, "best"},
		"no devices":        {strings.Replace(header, `"Devices":[0]`, `"Devices":[]`, 1), 1, "0 devices"},
		"two headers":       {header + header, 2, "format"},
		"torn in between":   {header + lines[1][:20] + "\n" + lines[2], 2, "EOF; " + damaged},
		"two in a line":     {header + strings.TrimSpace(lines[1]) + lines[2], 2, "more than one"},
		"empty line":        {header + "\n", 2, "EOF"},
		"unknown event":     {header + `{"e":"guess","t":1}` + "\n", 2, "guess"},
		"no kind":           {header + `{"e":"unknown","t":1}` + "\n", 2, "unknown"},
		"unknown key":       {header + `{"e":"drain","t":1,"u":1}` + "\n", 2, `"u"`},
		"huge time":         {header + `{"e":"drain","t":9223372036854775808}` + "\n", 2, "9223372036854775808"},
		"fraction":          {header + `{"e":"drain","t":0.5}` + "\n", 2, "0.5"},
		"huge size":         {header + `{"e":"arrive","t":1,"query":{"id":1,"n":2147483648}}` + "\n", 2, "out of range"},
		"shape":             {header + `{"e":"arrive","t":1,"query":{"id":1,"n":1,"shape":"xyz"}}` + "\n", 2, "xyz"},
		"status":            {header + `{"e":"finish","t":1,"outcome":{"round":1,"s":[{"span":{"b":1},"as":"well"}]}}` + "\n", 2, "well"},
		"question":          {header + `{"e":"ready","t":1,"p":[[[0,1]]]}` + "\n", 2, "question of 2"},
		"question's spans":  {header + `{"e":"ready","t":1,"p":[[[0,1,1,0,0,0]]]}` + "\n", 2, "question of 6"},
		"question's prefix": {header + `{"e":"ready","t":1,"p":[[[1,1,1]]]}` + "\n", 2, "question of 3"},
		"no questions":      {header + `{"e":"ready","t":1,"p":"x]"}` + "\n", 2, "bad record"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Replay("some.log", strings.NewReader(c.text), goOn)
			if err == nil {
				t.Fatal("it was read")
			}
			if place := fmt.Sprintf("some.log:%d: ", c.line); !strings.HasPrefix(err.Error(), place) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want it at %q with %q", err, place, c.says)
			}
		})
	}
}

// Whatever an event brings is the same when it was written and read.
func TestReaderKnowsEveryEvent(t *testing.T) {
	span := models.Span{Service: 1, Batch: 2, Start: 3, End: 4, Size: 5, SeqLen: 6}
	e := overlap.Event{
		Query: models.Query{
			ID: 1, Service: 2, Size: 3, SeqLen: 4, Shape: 1 << 63, Arrival: 5, Deadline: 6, Priority: 7, Alone: true, Accuracy: 0.5, Fixed: true,
		},
		Outcome: models.Outcome{Round: 1, Device: 2, Took: 3, Latency: 4, Spans: []models.SpanOutcome{{Span: span, Status: models.SpanLost, Reached: 5, Took: 6}}},
		Move:    overlap.Move{Held: overlap.Held{Service: 1, Batch: 2, Device: 3}, To: 4, Operator: 5, Size: 6},
		Took:    1, Status: models.SpanFailed, Service: 2, Device: 3, Definition: testConfig("edf", 2, 2).Services[1],
	}
	for e.Kind = overlap.Arrive; e.Kind.String() != "unknown"; e.Kind++ {
		for i, v := 0, reflect.ValueOf(e); i < v.NumField(); i++ {
			if v.Field(i).IsZero() {
				t.Fatalf("%v: give %s a value", e.Kind, v.Type().Field(i).Name)
			}
		}
		line := newLines()
		if err := line.encoder.Encode(&Record{Type: e.Kind.String(), At: 1, Event: &e, Failure: "why"}); err != nil {
			t.Fatal(err)
		}
		r, _, err := newReader("log", line).record()
		if err != nil {
			t.Fatalf("%v: %v", e.Kind, err)
		}
		if diff := cmp.Diff(e, *r.Event); diff != "" || r.Failure != "why" {
			t.Errorf("%v: %s", e.Kind, diff)
		}
	}
}

// A crash tears the last line. All before it is read.
func TestReaderLeavesOutATornLine(t *testing.T) {
	text := recorded(t, testConfig("edf", 2, 1), 1, 100)
	whole := replayText(t, text)
	if whole.Torn {
		t.Fatal("a whole line counts as torn")
	}
	for _, cut := range []int{1, 2, 10} {
		torn := replayText(t, text[:len(text)-cut])
		if !torn.Torn || torn.Records != whole.Records-1 {
			t.Errorf("without its last %d bytes: %+v", cut, torn)
		}
	}
}

func TestReaderBoundsLines(t *testing.T) {
	_, err := Replay("log", &endless{}, goOn)
	if err == nil || !strings.Contains(err.Error(), "a line of more than 67108864 bytes") {
		t.Errorf("got %v", err)
	}
}

type endless struct{}

var manyX = bytes.Repeat([]byte("x"), 1<<16)

func (endless) Read(b []byte) (int, error) { return copy(b, manyX), nil }

func FuzzReader(f *testing.F) {
	for i, policy := range overlap.Policies() {
		text := recorded(f, testConfig(policy.Name, 1+i%3, 1), uint64(i), 20)
		f.Add(text)
		lines := bytes.SplitAfter(text, []byte("\n"))
		f.Add(append(bytes.Join(lines[:1], nil), bytes.Join(lines[2:], nil)...))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := Replay("log", bytes.NewReader(text), goOn)
		var d *Difference
		if err != nil && !errors.As(err, &d) && !strings.HasPrefix(err.Error(), "log:") {
			t.Errorf("an error without a place: %v", err)
		}
	})
}
