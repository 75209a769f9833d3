package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/segments/probe"
)

// cutOptions are what is measured of running models operator by operator instead of as a whole: each
// model at each batch and thread count, as in Spec. Time is taken in turns within one process, and
// resident memory each in a process of its own. No daemon is involved.
type cutOptions struct {
	Models   []string
	Batches  []int
	Threads  []int
	Spec     probe.Spec
	Path     func(model string) (onnx string, err error)
	Command  []string           // what runs a probe: it reads a probe.Spec and writes a probe.Result
	Progress func(doing string) // may be nil
}

// check returns everything that is wrong with the options, or nil.
func (o *cutOptions) check() error {
	var faults []error
	within := func(what string, least, most int, list ...int) {
		for _, v := range list {
			if v < least || v > most {
				faults = append(faults, fmt.Errorf("%s must be in [%d, %d], not %d", what, least, most, v))
			}
		}
	}
	within("the number of batch sizes", 1, 4096, len(o.Batches))
	within("a batch size", 1, 4096, o.Batches...)
	within("the number of thread counts", 1, 1024, len(o.Threads))
	within("a thread count", 1, 1024, o.Threads...)
	within("the sequence length", 1, 1<<16, o.Spec.SeqLen)
	within("the number of operators wanted", 0, math.MaxInt32, o.Spec.Target)
	if d := o.Spec.Duration; d <= 0 {
		faults = append(faults, fmt.Errorf("the duration must be more than 0, not %v", d))
	}
	return errors.Join(faults...)
}

// cutRow compares one model at one batch and thread count.
type cutRow struct {
	Model         string  `json:"model"`
	Batch         int     `json:"batch"`
	SeqLen        int     `json:"seq_len,omitempty"`
	Threads       int     `json:"threads"`
	Segments      int     `json:"segments"`
	Rounds        int     `json:"rounds"`
	WholeMS       float64 `json:"whole_ms"`
	CutMS         float64 `json:"cut_ms"`
	WholeMinMS    float64 `json:"whole_min_ms"`
	CutMinMS      float64 `json:"cut_min_ms"`
	Equal         bool    `json:"equal"`
	Ratio         float64 `json:"ratio"` // between medians
	WholeRSSBytes int64   `json:"whole_rss_bytes"`
	CutRSSBytes   int64   `json:"cut_rss_bytes"`
	RSSRatio      float64 `json:"rss_ratio"`
	CutPeakBytes  int64   `json:"cut_peak_bytes"` // while loading
	Intermediates int64   `json:"intermediate_bytes"`
}

// run measures everything that o asks for, one process at a time. Where one
// fails, it returns what was measured before, too.
func (o *cutOptions) run(ctx context.Context) ([]cutRow, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	var rows []cutRow
	for _, model := range o.Models {
		path, err := o.Path(model)
		if err != nil {
			return rows, err
		}
		o.Spec.Path = path
		for _, threads := range o.Threads {
			for _, batch := range o.Batches {
				row, err := o.compare(ctx, model, batch, threads)
				if err != nil {
					return rows, fmt.Errorf("%s, batch %d, %d threads: %w", model, batch, threads, err)
				}
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

// cutTable returns comparisons for a person to look at.
func cutTable(rows []cutRow) *report.Table {
	mib := func(bytes int64) float64 { return float64(bytes) / (1 << 20) }
	t := report.NewTable("model", "batch", "threads", "operators", "whole ms", "cut ms", "ratio", "whole MiB", "cut MiB", "ratio", "live MiB", "outputs")
	for _, row := range rows {
		equal := "equal"
		if !row.Equal {
			equal = "DIFFER"
		}
		t.Rowf("%s\t%d\t%d\t%d\t%.2f\t%.2f\t%.3f\t%.0f\t%.0f\t%.2f\t%.1f\t%s",
			row.Model, row.Batch, row.Threads, row.Segments, row.WholeMS, row.CutMS, row.Ratio,
			mib(row.WholeRSSBytes), mib(row.CutRSSBytes), row.RSSRatio, mib(row.Intermediates), equal)
	}
	return t
}

func (o *cutOptions) compare(ctx context.Context, model string, batch, threads int) (cutRow, error) {
	spec := o.Spec
	spec.Batch, spec.Threads = batch, threads
	var results [3]probe.Result
	// Time comes first: it leaves the optimized model in the cache, so that
	// making it does not count as memory of the cut one.
	for i, mode := range []string{probe.ModeTime, probe.ModeWhole, probe.ModeCut} {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("%s, batch %d, %d threads: %s", model, batch, threads, mode))
		}
		spec.Mode = mode
		var err error
		if results[i], err = probe.Run(ctx, o.Command, spec); err != nil {
			return cutRow{}, err
		}
	}
	timed, whole, cut := results[0], results[1], results[2]
	return cutRow{
		Model: model, Batch: batch, SeqLen: spec.SeqLen, Threads: threads,
		Segments: timed.Segments, Rounds: timed.Rounds, WholeMS: timed.WholeMS, CutMS: timed.CutMS,
		WholeMinMS: timed.WholeMinMS, CutMinMS: timed.CutMinMS, Equal: timed.Equal, Ratio: timed.CutMS / timed.WholeMS,
		WholeRSSBytes: whole.RSSBytes, CutRSSBytes: cut.RSSBytes,
		RSSRatio:     float64(cut.RSSBytes) / float64(whole.RSSBytes),
		CutPeakBytes: cut.PeakBytes, Intermediates: cut.IntermediateBytes,
	}, nil
}
