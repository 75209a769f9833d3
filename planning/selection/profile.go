package selection

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/internal/textfile"
)

// errProfile is wrapped by errors about a file of measured variants.
var errProfile = errors.New("unusable profile of variants")

// sheet returns the format of CSV files with the given columns.
func sheet(columns string) *textfile.Sheet {
	return &textfile.Sheet{Form: "a header line with the columns " + columns, MaxRows: 1_000_000, Unusable: errProfile, TooLarge: errProfile}
}

// ReadProfile reads variants from a CSV file with one row for each batch of each variant. Its
// columns are variant, accuracy (the same in each row of a variant), batch and latency_ms.
// [Interpolate] fills in the batches that the file leaves out.
func ReadProfile(path string) ([]Variant, error) {
	var p profile
	var accuracy int
	head := func(t *textfile.Table) {
		accuracy = t.Require("accuracy")
		p.columns(t, "variant", "latency_ms")
	}
	err := sheet("variant, accuracy, batch and latency_ms").ReadFile(path, head, func(t *textfile.Table) {
		percent := t.Number(accuracy, 1e-6, 1e12)
		if v := p.add(t, percent); v != nil && v.Accuracy != percent {
			t.Refuse(accuracy, "an earlier row gives the same variant %v", v.Accuracy)
		}
	})
	return p.interpolated(), err
}

// ReadRAMSIS reads the variants for a task, image or text, from the measurements published with
// RAMSIS: the files accuracy_percent.csv and profile_summary_ms.csv of a folder. Latencies are 95th
// percentiles, as in the paper.
func ReadRAMSIS(folder, task string) ([]Variant, error) {
	accuracy := map[string]float64{}
	var p profile
	var tasks, model, value int
	head := func(t *textfile.Table) {
		tasks, model, value = t.Require("task"), t.Require("model"), t.Require("accuracy_percent")
	}
	err := sheet("task, model and accuracy_percent").ReadFile(filepath.Join(folder, "accuracy_percent.csv"), head, func(t *textfile.Table) {
		if t.Fields[tasks] == task {
			accuracy[strings.Clone(t.Fields[model])] = t.Number(value, 1e-6, 100)
		}
	})
	if err != nil {
		return nil, err
	}
	head = func(t *textfile.Table) {
		tasks = t.Require("task")
		p.columns(t, "model", "p95_ms")
	}
	err = sheet("task, model, batch and p95_ms").ReadFile(filepath.Join(folder, "profile_summary_ms.csv"), head, func(t *textfile.Table) {
		if percent, known := accuracy[t.Fields[p.name]]; known && strings.HasPrefix(t.Fields[tasks], task+"_") {
			p.add(t, percent)
		}
	})
	if err == nil && len(p.variants) == 0 {
		err = fmt.Errorf("%w: %s has no model of the task %.40q; give image or text", errProfile, folder, task)
	}
	return p.interpolated(), err
}

// profile collects variants while a file is read.
type profile struct {
	// name, batch and latency are the indices of columns.
	name, batch, latency int
	variants             []Variant

	// measured maps batches to latencies, for each variant.
	measured []map[int]float64
}

// columns looks up the columns that every kind of profile has.
func (p *profile) columns(t *textfile.Table, name, latency string) {
	p.name, p.batch, p.latency = t.Require(name), t.Require("batch"), t.Require(latency)
}

// add adds a row and returns its variant, or nil if the row does not name a variant or names one
// too many.
func (p *profile) add(t *textfile.Table, accuracy float64) *Variant {
	i := slices.IndexFunc(p.variants, func(v Variant) bool { return v.Name == t.Fields[p.name] })
	b, ms := t.Whole(p.batch, 1, maxQueue), t.Number(p.latency, 1e-6, 1e9)
	switch {
	case t.Fields[p.name] == "":
		t.Refuse(p.name, "every row must name a variant")
		return nil
	case i < 0 && len(p.variants) == maxVariants:
		t.Refuse(p.name, "more than %d variants; leave some out", maxVariants)
		return nil
	case i < 0:
		i = len(p.variants)
		p.variants = append(p.variants, Variant{Name: strings.Clone(t.Fields[p.name]), Accuracy: accuracy})
		p.measured = append(p.measured, map[int]float64{})
	case p.measured[i][b] > 0:
		t.Refuse(p.batch, "an earlier row gives the same batch %v ms", p.measured[i][b])
	}
	p.measured[i][b] = ms
	return &p.variants[i]
}

// interpolated returns the variants with a latency for every batch.
func (p *profile) interpolated() []Variant {
	for i, m := range p.measured {
		p.variants[i].Latency = Interpolate(m, maxQueue, 0)
	}
	return p.variants
}

// Interpolate returns the latencies of batches of 1 and up, given measured latencies by batch. It
// covers every batch up to the largest one measured, but at most most. Between two measured batches
// it interpolates linearly, and a batch below the smallest one takes as long as the smallest.
// Batches beyond, up to queue, take the time of several batches run one after another.
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
