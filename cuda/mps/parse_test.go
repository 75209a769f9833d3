package mps

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
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
		"Server not found\n":  ErrNoServer,
		"server not found.":   ErrNoServer,
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

func TestParseStatus(t *testing.T) {
	for _, status := range []Status{StatusStarting, StatusActive, StatusFault} {
		if got, err := parseStatus("status", string(status)+"\n"); err != nil || got != status {
			t.Errorf("%s: %s, %v", status, got, err)
		}
	}
	for text, want := range map[string]error{
		"": ErrOutput, "active": ErrOutput, "ACTIVE FAULT": ErrOutput, "DEFUNCT": ErrOutput, "Server not found": ErrNoServer,
	} {
		if got, err := parseStatus("status", text); !errors.Is(err, want) || got != "" {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}

func TestParsePercentage(t *testing.T) {
	for text, want := range map[string]float64{"100.0\n": 100, "33.3": 33.3, "1": 1} {
		if got, err := parsePercentage("get", text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "100.1", "NaN", "Inf", "fifty", "50 %"} {
		if got, err := parsePercentage("get", text); !errors.Is(err, ErrOutput) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestParseClients(t *testing.T) {
	const header = "PID       ID    SERVER    DEVICE             NAMESPACE    COMMAND\n"
	for text, want := range map[string][]Client{
		"":                 nil,
		"\n":               nil,
		"Server not found": nil,
		header:             nil,
		header + "9741      0     6472      GPU-cb1213a3-d6a4-be7f   9741     ./nbody -n 10\n": {
			{PID: 9741, Server: 6472, Device: "GPU-cb1213a3-d6a4-be7f", Namespace: 9741, Command: "./nbody -n 10"},
		},
		// As NVIDIA's documentation has it ("Client Early Termination").
		header + "\n9741 0 6472 GPU-cb1213a3-d6a4-be7f 4026531836 ./nbody\n\n9743 0 6472 GPU-cb1213a3-d6a4-be7f 4026531836 ./matrixMul\n": {
			{PID: 9741, Server: 6472, Device: "GPU-cb1213a3-d6a4-be7f", Namespace: 4026531836, Command: "./nbody"},
			{PID: 9743, Server: 6472, Device: "GPU-cb1213a3-d6a4-be7f", Namespace: 4026531836, Command: "./matrixMul"},
		},
		header + "9 4 7 MIG-1 2\n8 5 7 MIG-1 3 a b": {
			{PID: 9, ID: 4, Server: 7, Device: "MIG-1", Namespace: 2}, {PID: 8, ID: 5, Server: 7, Device: "MIG-1", Namespace: 3, Command: "a b"},
		},
	} {
		if got, err := parseClients("ps", text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"9 4 7 GPU-1 2 a", "PID ID SERVER\n1 2 3\n", header + "9 4 7 GPU-1\n", header + "x 4 7 GPU-1 2\n",
		header + "9 -4 7 GPU-1 2\n", header + "9 4 0 GPU-1 2\n", header + "9 4 7 GPU-1 host\n", header + header,
	} {
		if got, err := parseClients("ps", text); !errors.Is(err, ErrOutput) || got != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// What is printed as documented is read as it was meant.
func TestParseRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pid := rapid.IntRange(1, pidMax)
		want := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Client {
			return Client{
				PID: pid.Draw(t, "pid"), ID: rapid.Uint64().Draw(t, "id"), Server: pid.Draw(t, "server"),
				Device:    rapid.StringMatching(`(GPU|MIG)-[0-9a-f-]{1,30}`).Draw(t, "device"),
				Namespace: rapid.Uint64().Draw(t, "namespace"), Command: rapid.StringMatching(`([!-~]+( [!-~]+){0,3})?`).Draw(t, "command"),
			}
		})).Draw(t, "clients")
		text := psColumns + "\n"
		var pids []string
		for _, c := range want {
			text += fmt.Sprintf("%8d  %d  %d %s\t%d %s\n", c.PID, c.ID, c.Server, c.Device, c.Namespace, c.Command)
			pids = append(pids, fmt.Sprint(c.PID))
		}
		if got, err := parseClients("ps", text); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%+v, %v", got, err)
		}
		list, err := parsePIDs("list", strings.Join(pids, "\n"))
		if err != nil || len(list) != len(want) {
			t.Fatalf("%v, %v", list, err)
		}
		for i := range list {
			if list[i] != want[i].PID {
				t.Fatalf("%v", list)
			}
		}
	})
}

// Whatever is printed, a parser returns what can be, or an error that quotes
// no more than a line.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "1 2\n", "ACTIVE", "100.0", psColumns + "\n1 2 3 GPU-1 4 a\n", "Server not found", "\x00\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pids, errPIDs := parsePIDs("c", text)
		status, errStatus := parseStatus("c", text)
		percentage, errPercentage := parsePercentage("c", text)
		clients, errClients := parseClients("c", text)
		for _, err := range []error{errPIDs, errStatus, errPercentage, errClients} {
			if err != nil && (!errors.Is(err, ErrOutput) && !errors.Is(err, ErrNoServer) || len(err.Error()) > 300+4*quoteMax) {
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
		if errPercentage == nil && !(percentage > 0 && percentage <= 100) {
			t.Errorf("percentage %v", percentage)
		}
		for _, c := range clients {
			if c.PID < 1 || c.Server < 1 || c.Device == "" {
				t.Errorf("client %+v", c)
			}
		}
	})
}
