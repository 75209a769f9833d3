package mps

import (
	"errors"
	"slices"
	"testing"
)

func TestParsePIDs(t *testing.T) {
	for text, want := range map[string][]int{
		"":                nil,
		"\n":              nil,
		"4711\n":          {4711},
		"1\n4194304\n":    {1, pidMax},
		"30112 30119\t7 ": {30112, 30119, 7},
	} {
		if got, err := parsePIDs("list", text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]error{
		"Server not found\n":  ErrOutput, // send has seen it before
		"0":                   ErrOutput,
		"-7":                  ErrOutput,
		"4194305":             ErrOutput,
		"99999999999999999":   ErrOutput,
		"12 potatoes":         ErrOutput,
		"Unknown command: ps": ErrOutput,
		"1.0":                 ErrOutput,
		"0x10":                ErrOutput,
	} {
		if got, err := parsePIDs("list", text); !errors.Is(err, want) || got != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// Whatever is printed, a parser returns what can be, or an error that quotes
// no more than a line.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "1 2\n", "ACTIVE", "Server not found", "\x00\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pids, errPIDs := parsePIDs("c", text)
		status, errStatus := parseStatus("c", text)
		for _, err := range []error{errPIDs, errStatus} {
			if err != nil && (!errors.Is(err, ErrOutput) || len(err.Error()) > 300+4*quoteMax) {
				t.Errorf("error %v", err)
			}
		}
		for _, pid := range pids {
			if pid < 1 || pid > pidMax {
				t.Errorf("PID %d", pid)
			}
		}
		if errStatus == nil && status != StatusActive && status != StatusFault && status != StatusStarting {
			t.Errorf("status %q", status)
		}
	})
}
