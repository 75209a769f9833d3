package selection

import (
	"maps"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/textfile"
)

var profileSheet = textfile.Sheet{
	Form: "a header line with the columns variant, accuracy, batch and latency_ms", MaxRows: 1_000_000, Unusable: errProfile, TooLarge: errProfile,
}

// ReadProfile reads variants from a CSV file with a row for each batch of each of them, in the
// columns variant, accuracy (the same in each row of a variant), batch and latency_ms. It
// leaves latencies of batches between those in the file to [Interpolate].
func ReadProfile(path string) (variants []Variant, err error) {
	var name, accuracy, batch, latency int
	var measured []map[int]float64
	head := func(t *textfile.Table) {
		name, accuracy, batch, latency = t.Require("variant"), t.Require("accuracy"), t.Require("batch"), t.Require("latency_ms")
	}
	err = profileSheet.ReadFile(path, head, func(t *textfile.Table) {
		i := slices.IndexFunc(variants, func(v Variant) bool { return v.Name == t.Fields[name] })
		percent, b, ms := t.Number(accuracy, 1e-6, 1e12), t.Whole(batch, 1, maxQueue), t.Number(latency, 1e-6, 1e9)
		switch {
		case t.Fields[name] == "":
			t.Refuse(name, "every row must name a variant")
		case i < 0 && len(variants) == maxVariants:
			t.Refuse(name, "there are more than %d variants", maxVariants)
		case i < 0:
			i = len(variants)
			variants = append(variants, Variant{Name: strings.Clone(t.Fields[name]), Accuracy: percent})
			measured = append(measured, map[int]float64{})
		case percent != variants[i].Accuracy:
			t.Refuse(accuracy, "an earlier row gives the same variant %v", variants[i].Accuracy)
		case measured[i][b] > 0:
			t.Refuse(batch, "an earlier row gives the same variant and batch %v ms", measured[i][b])
		}
		if i >= 0 {
			measured[i][b] = ms
		}
	})
	for i, m := range measured {
		variants[i].Latency = Interpolate(m, maxQueue, 0)
	}
	return variants, err
}

// Interpolate returns the latency of every batch from 1 to the largest that was measured and is
// no larger than most, given those that were, by batch. Between two of them it is on the line
// through both, and a batch below the smallest takes as long as that: it can be padded. Beyond
// them, up to a queue of so many, it is that of several batches one after another.
func Interpolate(measured map[int]float64, most, queue int) (latency []float64) {
	before := 0
	for _, b := range slices.Sorted(maps.Keys(measured)) {
		from := measured[b]
		if before > 0 {
			from = measured[before]
		}
		for i := before + 1; i <= min(b, most); i++ {
			latency = append(latency, from+(measured[b]-from)*float64(i-before)/float64(b-before))
		}
		before = b
	}
	for n := len(latency); n > 0 && len(latency) < queue; {
		latency = append(latency, latency[n-1]+latency[len(latency)-n])
	}
	return latency
}
