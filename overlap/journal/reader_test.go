package journal

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/overlap"
)

func TestReaderRefuses(t *testing.T) {
	text := string(recorded(t, testConfig("edf", 2, 1), 1, 30))
	lines := strings.SplitAfter(text, "\n")
	header, state, rest := lines[0], lines[1], strings.Join(lines[2:], "")
	for name, c := range map[string]struct {
		text string
		err  error
		line int
		says string
	}{
		"empty":              {"", ErrFormat, 1, "it is empty"},
		"no text":            {"\x00\x01\n", ErrFormat, 1, ""},
		"torn header":        {header[:20], ErrFormat, 1, ""},
		"other JSON":         {"{\"a\":1}\n", ErrFormat, 1, "overlapd-decisions/6"},
		"a predictor":        {`{"format":"overlapd-predictor/1"}` + "\n", ErrFormat, 1, "overlapd-predictor/1"},
		"an older version":   {`{"format":"overlapd-decisions/5"}` + "\n", ErrVersion, 1, `"5"; replay it with the overlapd that wrote it`},
		"a later version":    {`{"format":"overlapd-decisions/7"}` + "\n", ErrVersion, 1, `"7"`},
		"unknown field":      {strings.Replace(header, `"commit"`, `"comit"`, 1) + state, ErrFormat, 1, "comit"},
		"no checkpoint":      {header + rest, ErrCheckpoint, 2, "arrive"},
		"nothing but header": {header, ErrCheckpoint, 2, "ends"},
		"gap at the end":     {header + state + `{"e":"gap","lost":1,"why":"x"}` + "\n", ErrCheckpoint, 4, "ends"},
		"gap without":        {header + state + `{"e":"gap","lost":1,"why":"x"}` + "\n" + lines[2], ErrCheckpoint, 4, "arrive"},
		"other services":     {header + strings.Replace(state, `"Services":[{`, `"Services":[{},{`, 1), ErrCheckpoint, 2, "0 operators"},
		"bad policy":         {strings.Replace(header, `"edf"`, `"best"`, 1) + state, ErrCheckpoint, 2, "best"},
		"torn in the middle": {header + state + lines[2][:20] + "\n" + lines[3], ErrRecord, 3, "EOF"},
		"two in a line":      {header + state + strings.TrimSpace(lines[2]) + lines[3], ErrRecord, 3, "more than one"},
		"empty line":         {header + state + "\n", ErrRecord, 3, ""},
		"unknown event":      {header + state + `{"e":"guess","t":1}` + "\n", ErrRecord, 3, "guess"},
		"no kind":            {header + state + `{"e":"unknown","t":1}` + "\n", ErrRecord, 3, "unknown"},
		"unknown key":        {header + state + `{"e":"drain","t":1,"u":1}` + "\n", ErrRecord, 3, `"u"`},
		"huge time":          {header + state + `{"e":"drain","t":9223372036854775808}` + "\n", ErrRecord, 3, "9223372036854775808"},
		"fraction":           {header + state + `{"e":"drain","t":0.5}` + "\n", ErrRecord, 3, "0.5"},
		"huge size":          {header + state + `{"e":"arrive","t":1,"query":{"id":1,"n":2147483648}}` + "\n", ErrRecord, 3, "out of range"},
		"shape":              {header + state + `{"e":"arrive","t":1,"query":{"id":1,"n":1,"shape":"xyz"}}` + "\n", ErrRecord, 3, "xyz"},
		"status":             {header + state + `{"e":"finish","t":1,"outcome":{"round":1,"s":[{"span":{"b":1},"as":"well"}]}}` + "\n", ErrRecord, 3, "well"},
		"fewer services":     {header + strings.Replace(state, `"Services":[{`, `"Services":[],"Waiting":[{`, 1), ErrRecord, 2, ""},
		"without a state":    {header + `{"e":"checkpoint","t":1}` + "\n", ErrRecord, 2, "checkpoint"},
		"state elsewhere":    {header + state + `{"e":"drain","t":1,"state":{}}` + "\n", ErrRecord, 3, "drain"},
		"question":           {header + state + `{"e":"ready","t":1,"p":[[[0,1]]]}` + "\n", ErrRecord, 3, "question of 2"},
		"question's spans":   {header + state + `{"e":"ready","t":1,"p":[[[0,1,1,0,0,0]]]}` + "\n", ErrRecord, 3, "question of 6"},
		"question's prefix":  {header + state + `{"e":"ready","t":1,"p":[[[1,1,1]]]}` + "\n", ErrRecord, 3, "question of 3"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Replay("some.log", strings.NewReader(c.text), ReplayOptions{})
			if !errors.Is(err, c.err) {
				t.Fatalf("got %v, want %v", err, c.err)
			}
			if place := fmt.Sprintf("some.log:%d: ", c.line); !strings.HasPrefix(err.Error(), place) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want it at %q with %q", err, place, c.says)
			}
		})
	}
}

// A crash tears the last line. All before it is read.
func TestReaderLeavesOutATornLine(t *testing.T) {
	text := recorded(t, testConfig("edf", 2, 1), 1, 100)
	whole, err := Replay("log", bytes.NewReader(text), ReplayOptions{})
	if err != nil || whole.Torn {
		t.Fatalf("%v, torn is %v", err, whole.Torn)
	}
	for _, cut := range []int{1, 2, 10} {
		torn, err := Replay("log", bytes.NewReader(text[:len(text)-cut]), ReplayOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !torn.Torn || !torn.Reproduced || torn.Events != whole.Events-1 {
			t.Errorf("without its last %d bytes: %+v", cut, torn)
		}
	}
}

// A log that was written again by another tool holds the same.
func TestReaderTakesOtherSpacing(t *testing.T) {
	text := recorded(t, testConfig("edf", 2, 1), 1, 100)
	spaced := bytes.ReplaceAll(text, []byte(`,"`), []byte(` , "`))
	report, err := Replay("log", bytes.NewReader(spaced), ReplayOptions{})
	if err != nil || !report.Reproduced {
		t.Errorf("%v, %+v", err, report)
	}
}

func TestReaderBoundsLines(t *testing.T) {
	_, err := Replay("log", &endless{}, ReplayOptions{})
	if !errors.Is(err, ErrLimit) {
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
		report, err := Replay("log", bytes.NewReader(text), ReplayOptions{Each: func(_ *Report, r *Round) { r.Ratio() }})
		switch {
		case err != nil && !strings.HasPrefix(err.Error(), "log:"):
			t.Errorf("an error without a place: %v", err)
		case err == nil && report.Reproduced != (report.Difference == nil):
			t.Errorf("%+v", report)
		}
	})
}
