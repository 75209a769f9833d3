package selection

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/textfile"
)

var (
	errProfile = errors.New("unusable profile of variants")

	accuracySheet = textfile.Sheet{
		Form: "a header line with the columns task, model and accuracy_percent", MaxRows: 10_000, Unusable: errProfile, TooLarge: errProfile,
	}
	latencySheet = textfile.Sheet{
		Form: "a header line with the columns task, model, batch and p95_ms", MaxRows: 1_000_000, Unusable: errProfile, TooLarge: errProfile,
	}
)

// ReadRAMSIS reads the variants for a task, image or text, from the measurements that come
// with RAMSIS: the files accuracy_percent.csv and profile_summary_ms.csv of a folder. Latency
// is the 95th percentile, as in the paper, of batches from 1 on without a gap.
func ReadRAMSIS(folder, task string) (variants []Variant, err error) {
	accuracy := map[string]float64{}
	var tasks, model, value, batch int
	head := func(t *textfile.Table) {
		tasks, model, value = t.Require("task"), t.Require("model"), t.Require("accuracy_percent")
	}
	err = accuracySheet.ReadFile(filepath.Join(folder, "accuracy_percent.csv"), head, func(t *textfile.Table) {
		if t.Fields[tasks] == task {
			accuracy[strings.Clone(t.Fields[model])] = t.Number(value, 1e-6, 100)
		}
	})
	if err != nil {
		return nil, err
	}
	head = func(t *textfile.Table) {
		tasks, model, batch, value = t.Require("task"), t.Require("model"), t.Require("batch"), t.Require("p95_ms")
	}
	err = latencySheet.ReadFile(filepath.Join(folder, "profile_summary_ms.csv"), head, func(t *textfile.Table) {
		percent, known := accuracy[t.Fields[model]]
		if !known || !strings.HasPrefix(t.Fields[tasks], task+"_") {
			return
		}
		i := slices.IndexFunc(variants, func(v Variant) bool { return v.Name == t.Fields[model] })
		if i < 0 {
			i = len(variants)
			variants = append(variants, Variant{Name: strings.Clone(t.Fields[model]), Accuracy: percent})
		}
		if v := &variants[i]; t.Whole(batch, 1, maxQueue) != len(v.Latency)+1 {
			t.Refuse(batch, "the batches of a model must follow each other from 1 on; the next one of %.40q is %d", v.Name, len(v.Latency)+1)
		} else {
			v.Latency = append(v.Latency, t.Number(value, 1e-6, 1e9))
		}
	})
	if err == nil && len(variants) == 0 {
		err = fmt.Errorf("%w: %s has no model of the task %.40q; give image or text", errProfile, folder, task)
	}
	return variants, err
}

// Resize returns a set of n variants from a front. A smaller one has its first and last
// variants, and those between them at equal distances. A larger one has all of it, and
// variants between neighbours whose accuracy and latency are interpolated, wherever the
// accuracies are furthest apart (RAMSIS, section 7.3.2).
func Resize(front []Variant, n int) (set []Variant) {
	if n <= 1 {
		return front[:max(n, 0)]
	}
	if n <= len(front) {
		for i := range n {
			set = append(set, front[i*(len(front)-1)/(n-1)])
		}
		return set
	}
	between := make([]int, len(front)-1) // variants that are put behind each one
	for range n - len(front) {
		widest, at := -1.0, 0
		for i, k := range between {
			if gap := (front[i+1].Accuracy - front[i].Accuracy) / float64(k+1); gap > widest {
				widest, at = gap, i
			}
		}
		if len(between) > 0 {
			between[at]++
		}
	}
	for i, v := range front {
		set = append(set, v)
		if i == len(between) {
			break
		}
		for k := 1; k <= between[i]; k++ {
			set = append(set, interpolate(v, front[i+1], float64(k)/float64(between[i]+1)))
		}
	}
	return set
}

func interpolate(a, b Variant, part float64) Variant {
	v := Variant{Name: fmt.Sprintf("%s+%.0f%%", a.Name, 100*part), Accuracy: a.Accuracy + part*(b.Accuracy-a.Accuracy)}
	for i := range min(len(a.Latency), len(b.Latency)) {
		v.Latency = append(v.Latency, a.Latency[i]+part*(b.Latency[i]-a.Latency[i]))
	}
	return v
}
