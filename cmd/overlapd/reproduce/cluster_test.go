package reproduce

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParseLoads(t *testing.T) {
	got, err := parseLoads(strings.NewReader("minute,load\n0,10\n1,0\n2,2.5\n"), "loads.csv")
	if err != nil || !slices.Equal(got, []float64{10, 0, 2.5}) {
		t.Errorf("%v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                         "the trace is empty",
		"minute,load\n":            "the trace is empty",
		"minute,load\n0,0\n":       "the trace is empty",
		"load,minute\n":            "loads.csv:1: unusable data: the columns are",
		"minute,load\n1,5\n":       "loads.csv:2: unusable data: \"1,5\" is not minute 0",
		"minute,load\n0,5\n\n":     "loads.csv:3",
		"minute,load\n0,-5\n":      `the load "-5"`,
		"minute,load\n0,NaN\n":     `the load "NaN"`,
		"minute,load\n0,20000000":  `the load "20000000"`,
		"minute,load\n0,5 # ten\n": `the load "5 # ten"`,
	} {
		if _, err := parseLoads(strings.NewReader(text), "loads.csv"); !errors.Is(err, ErrData) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
