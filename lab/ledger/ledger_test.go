package ledger

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/overlap"
)

var full = flag.Bool("ledger", false, "measure every rule on every mix, and fail where one does not earn its place")

// fittedVariable names the folder with the A100 that overlapd-lab reproduce abacus has fitted.
const fittedVariable = "OVERLAPD_FITTED"

// TestLedger prints the ledger of the rules:
//
//	make ledger
func TestLedger(t *testing.T) {
	mixes, err := mixesOf(os.Getenv(fittedVariable))
	if err != nil {
		t.Fatal(err)
	}
	o := options{Seeds: 6, Queries: 3000, Workers: 2}
	if !*full {
		mixes, o = mixes[len(mixes)-1:], options{Seeds: 1, Queries: 1000, Workers: 2}
	}
	entries, err := measureAll(t.Context(), mixes, o, func(e entry) {
		if *full {
			t.Logf("%s without %s: %.1f %% of the highest load, %.1f %% of those in time at twice the load", e.mix, e.Rule, e.Load, e.Overload)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(mixes)*len(overlap.Rules()) {
		t.Errorf("%d entries of %d mixes and %d rules", len(entries), len(mixes), len(overlap.Rules()))
	}
	var table strings.Builder
	if err := writeTable(&table, mixes, entries); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table.String()) {
		t.Log(strings.TrimSpace(line))
	}
	for _, v := range judge(entries) {
		if *full && !v.earns {
			t.Errorf("rule %s: it gains at most %.1f %% (%s), and costs up to %.1f %% (%s); delete it or say where it pays",
				v.Rule, v.Gains.most(), v.Gains.mix, -v.Costs.least(), v.Costs.mix)
		}
	}
}

// Without load shedding an overload costs far more than without a rule that is named wrong, which
// no scheduler accepts.
func TestRulesAreSwitchedOff(t *testing.T) {
	mixes, err := mixesOf("")
	if err != nil {
		t.Fatal(err)
	}
	o := options{Seeds: 1, Queries: 1500, Workers: 1}
	with, err := measure(t.Context(), &mixes[0], "overlap", firstLoad, 0, o)
	if err != nil {
		t.Fatal(err)
	}
	without, err := measure(t.Context(), &mixes[0], "overlap-without:shedding,slice", with.load, overload*with.load, o)
	if err != nil {
		t.Fatal(err)
	}
	if without.inTime > 0.9*with.inTime {
		t.Errorf("%.2f of the queries are in time without shedding, %.2f with it", without.inTime, with.inTime)
	}
	if _, err := measure(t.Context(), &mixes[0], "overlap-without:magic", firstLoad, 0, o); err == nil {
		t.Error("a rule that does not exist is switched off")
	}
}

func TestJudge(t *testing.T) {
	verdicts := judge([]entry{
		{"a", "slice", 3, 0}, {"b", "slice", -0.5, 0.2}, // it earns
		{"a", "room", 0.4, 0.9}, {"b", "room", 0, -0.2}, // it gains nothing
		{"a", "yield", 5, 0}, {"b", "yield", 0, -2}, // it costs
	})
	for _, v := range verdicts {
		if want := v.Rule == "slice"; v.earns != want {
			t.Errorf("%s: earns its place is %v, want %v: %+v", v.Rule, v.earns, want, v)
		}
	}
}
