package journal

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/overlap"
)

// What a scheduler of any policy decided, a replay decides again.
func TestReplayReproduces(t *testing.T) {
	reproduces := func(rt rapid.TB, policy string, services int, seed uint64, steps int) (rounds uint64) {
		rt.Helper()
		c := testConfig(policy, services, seed)
		// What is lost before a checkpoint in the middle does not matter.
		text := recorded(t, c, seed, steps)
		if len(text) == 0 {
			return 0
		}
		report, err := Replay("log", bytes.NewReader(text), ReplayOptions{})
		if err != nil {
			rt.Fatal(err)
		}
		if !report.Reproduced {
			rt.Fatalf("%s: %+v", policy, report.Difference)
		}
		return report.Rounds
	}
	var names []string
	for _, p := range overlap.Policies() {
		names = append(names, p.Name)
		if reproduces(t, p.Name, 3, 1, 400) == 0 {
			t.Errorf("policy %s made no round", p.Name)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		policy, seed := rapid.SampledFrom(names).Draw(rt, "policy"), rapid.Uint64().Draw(rt, "seed")
		reproduces(rt, policy, rapid.IntRange(1, 5).Draw(rt, "services"), seed, rapid.IntRange(0, 400).Draw(rt, "steps"))
	})
}

// What is not as it was recorded shows where it is met first.
func TestReplayFindsTheFirstDifference(t *testing.T) {
	c := testConfig("edf", 3, 1)
	text := recorded(t, c, 1, 500)
	lines := bytes.SplitAfter(text, []byte("\n"))
	for name, spoil := range map[string]struct{ old, new, field string }{
		"predicted": {`"predicted":{"latency":`, `"predicted":{"latency":9`, "predicted"},
		"asked":     {`"p":[[[0,`, `"p":[[[0,1`, ""},
		"question":  {`"p":[[[0,`, `"p":[[[0,1,1,4,0,1,1,0],[0,`, "p"},
		"group":     {`"g":[{"sv":`, `"g":[{"sv":7`, "g"},
		"answer":    {`"as":"finished"`, `"as":"cancelled"`, "a"},
		"candidate": {`"headroom":`, `"headroom":-`, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			spoiled, at := []byte(nil), 0
			for i, line := range lines {
				if at == 0 && i > 20 && bytes.HasPrefix(line, []byte(`{"e":"ready"`)) && bytes.Contains(line, []byte(spoil.old)) {
					line, at = bytes.Replace(line, []byte(spoil.old), []byte(spoil.new), 1), i+1
				}
				spoiled = append(spoiled, line...)
			}
			report, err := Replay("log", bytes.NewReader(spoiled), ReplayOptions{})
			if err != nil {
				t.Fatal(err)
			}
			d := report.Difference
			if d == nil || report.Reproduced {
				t.Fatal("no difference")
			}
			if d.Line != at || spoil.field != "" && d.Field != spoil.field || d.Logged == d.Decided {
				t.Errorf("line %d was spoiled: %+v", at, d)
			}
		})
	}
}

func TestReplayOfSomeRounds(t *testing.T) {
	text := recorded(t, testConfig("fcfs", 2, 1), 1, 500)
	var seen []uint64
	report, err := Replay("log", bytes.NewReader(text), ReplayOptions{
		From: 10, To: 12, Each: func(_ *Report, r *Round) { seen = append(seen, r.Number) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != 3 || seen[0] != 10 || seen[2] != 12 || report.Rounds != 3 || report.LastRound != 12 {
		t.Errorf("rounds %v, %+v", seen, report)
	}
}

func TestReplayRefusesAnotherPolicy(t *testing.T) {
	text := recorded(t, testConfig("fcfs", 2, 1), 1, 10)
	if _, err := Replay("log", bytes.NewReader(text), ReplayOptions{Policy: "edf"}); !errors.Is(err, ErrPolicy) {
		t.Errorf("got %v", err)
	}
	if _, err := Replay("log", bytes.NewReader(text), ReplayOptions{Policy: "fcfs"}); err != nil {
		t.Error(err)
	}
}
