package journal

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/overlap"
)

// What a scheduler of any policy decided, a replay decides again.
func TestReplayReproduces(t *testing.T) {
	reproduces := func(rt rapid.TB, policy string, services int, seed uint64, steps int) (rounds uint64) {
		rt.Helper()
		c := testConfig(policy, services, seed)
		// What is lost before the newest file does not matter.
		text := recorded(t, c, seed, steps)
		if len(text) == 0 {
			return 0
		}
		return replayText(rt, text).Rounds
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
	for name, spoil := range map[string]struct{ old, new, key string }{
		"predicted": {`"predicted":{"latency":`, `"predicted":{"latency":9`, `"predicted":`},
		"asked":     {`"p":[[[0,`, `"p":[[[0,1`, ""},
		"question":  {`"p":[[[0,`, `"p":[[[0,1,1,4,0,1,1,0,0],[0,`, `"p":`},
		"group":     {`"g":[{"sv":`, `"g":[{"sv":7`, `"g":`},
		"answer":    {`"as":"finished"`, `"as":"cancelled"`, `"as":`},
		"candidate": {`"headroom":`, `"headroom":-`, `"headroom":`},
	} {
		t.Run(name, func(t *testing.T) {
			spoiled, at := []byte(nil), 0
			for i, line := range lines {
				if at == 0 && i > 20 && bytes.HasPrefix(line, []byte(`{"e":"ready"`)) && bytes.Contains(line, []byte(spoil.old)) {
					line, at = bytes.Replace(line, []byte(spoil.old), []byte(spoil.new), 1), i+1
				}
				spoiled = append(spoiled, line...)
			}
			_, err := Replay("log", bytes.NewReader(spoiled), goOn)
			var d *Difference
			if !errors.As(err, &d) {
				t.Fatalf("no difference: %v", err)
			}
			if d.Line != at || !strings.HasPrefix(d.Logged, spoil.key) || !strings.HasPrefix(d.Decided, spoil.key) || d.Logged == d.Decided {
				t.Errorf("line %d was spoiled: %v", at, d)
			}
		})
	}
}

// A replay ends where its caller wants.
func TestReplayStops(t *testing.T) {
	text := recorded(t, testConfig("fcfs", 2, 1), 1, 500)
	l, err := Replay("log", bytes.NewReader(text), func(l *Log, r *Record) bool { return r.Round == nil || r.Round.Number < 12 })
	if err != nil || l.Rounds != 12 {
		t.Errorf("%d rounds, %v", l.Rounds, err)
	}
}
