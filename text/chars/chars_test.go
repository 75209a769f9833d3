package chars

import (
	"testing"

	"github.com/clipperhouse/uax29/v2/graphemes"
)

// Both sides of a place that is said to be a border of clusters must be clusters of their own, also if
// what is before joins others, such as a prefix or a part of an emoji.
func TestClustersApart(t *testing.T) {
	var all []rune
	for r := rune(0); r < 0x10000; r++ {
		if single(r) {
			all = append(all, r)
		}
	}
	sides := []rune{'a', '\r', ' ', 'é', '中', '각', '가', 'क', 'ก', '\u1100', '\u0600'}
	firsts := []string{"", "\u0600", "\U0001f468\u200d", "\U0001f1e6", "क\u094d", "\u1100"}
	for i, r := range all {
		// Each code point meets a few others, and neighbours of it the rest.
		for n, before := range []rune{sides[i%len(sides)], sides[(i+5)%len(sides)], all[i*7919%len(all)]} {
			if !ClustersApart(before, r) {
				continue
			}
			text := firsts[(i+n)%len(firsts)] + string(before)
			whole := graphemes.FromString(text + string(r) + "x")
			border := false
			for whole.Next() {
				border = border || whole.End() == len(text)
			}
			if !border {
				t.Errorf("no border between %q and %q", text, r)
			}
		}
	}
	if ClustersApart('e', '\u0301') || ClustersApart('\r', '\n') || ClustersApart('\u0600', 'a') || len(all) < 30_000 {
		t.Errorf("%d characters are single", len(all))
	}
}

// Texts are cut before each code point that begins a part, and the parts are brought into the form.
func TestBegins(t *testing.T) {
	sides := []string{"a", "e\u0323", "\u1100", "\u1100\u1161", "가", "\u0bc6", "か", "\u0301", "\u00a8", "\U0001d158", "\uff76", "\u212b"}
	for name, f := range map[string]Form{"NFC": NFC, "NFD": NFD, "NFKC": NFKC, "NFKD": NFKD} {
		begins := 0
		for r := rune(0); r < 0x12000; r++ {
			if 0xd800 <= r && r < 0xe000 || !f.Begins(r) {
				continue
			}
			begins++
			// Each code point meets two others, and neighbours of it the rest.
			for i := range 2 {
				before, after := sides[(int(r)+7*i)%len(sides)], string(r)+sides[(int(r)/len(sides)+i)%len(sides)]
				if whole := f.Of(before + after); whole != f.Of(before)+f.Of(after) {
					t.Errorf("%s: %+q becomes %+q, not %+q and %+q", name, before+after, whole, f.Of(before), f.Of(after))
				}
			}
		}
		if begins < 60_000 {
			t.Errorf("%s: only %d code points begin a part", name, begins)
		}
	}
}
