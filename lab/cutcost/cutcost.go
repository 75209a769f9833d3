// Package cutcost measures what it costs to run a model operator by operator
// instead of as a whole, for "overlapd bench engine" and the checks of a GPU:
// time, taken in turns within one process, and resident memory, each in a
// process of its own. [Probe] takes one measurement in this process; [RunProbe]
// starts a process that does, and [Run] compares models by several of them. No
// daemon is involved.
package cutcost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/overlapd/overlapd/internal/report"
)

// probeTimeout is for the largest model of the zoo from a cold disk, and its largest batch.
const probeTimeout = 10 * time.Minute

// Options are what Run measures: each model at each batch and thread count, as in Spec.
type Options struct {
	Models   []string
	Batches  []int
	Threads  []int
	Spec     ProbeSpec
	Path     func(model string) (onnx string, err error)
	Command  []string           // what runs a probe: it reads a ProbeSpec and writes a ProbeResult
	Progress func(doing string) // may be nil
}

// check returns everything that is wrong with the options, or nil.
func (o *Options) check() error {
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

// Row compares one model at one batch and thread count.
type Row struct {
	Model   string `json:"model"`
	Batch   int    `json:"batch"`
	SeqLen  int    `json:"seq_len,omitempty"`
	Threads int    `json:"threads"`
	timing
	Ratio         float64 `json:"ratio"` // between medians
	WholeRSSBytes int64   `json:"whole_rss_bytes"`
	CutRSSBytes   int64   `json:"cut_rss_bytes"`
	RSSRatio      float64 `json:"rss_ratio"`
	CutPeakBytes  int64   `json:"cut_peak_bytes"` // while loading
	Intermediates int64   `json:"intermediate_bytes"`
}

// Run measures everything that o asks for, one process at a time. Where one
// fails, it returns what was measured before, too.
func Run(ctx context.Context, o Options) ([]Row, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	var rows []Row
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

// Table returns comparisons for a person to look at.
func Table(rows []Row) *report.Table {
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

func (o *Options) compare(ctx context.Context, model string, batch, threads int) (Row, error) {
	spec := o.Spec
	spec.Batch, spec.Threads = batch, threads
	var results [3]ProbeResult
	// Time comes first: it leaves the optimized model in the cache, so that
	// making it does not count as memory of the cut one.
	for i, mode := range []string{ModeTime, ModeWhole, ModeCut} {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("%s, batch %d, %d threads: %s", model, batch, threads, mode))
		}
		spec.Mode = mode
		var err error
		if results[i], err = RunProbe(ctx, o.Command, spec); err != nil {
			return Row{}, err
		}
	}
	timed, whole, cut := results[0], results[1], results[2]
	return Row{
		Model: model, Batch: batch, SeqLen: spec.SeqLen, Threads: threads,
		timing: timed.timing, Ratio: timed.CutMS / timed.WholeMS,
		WholeRSSBytes: whole.RSSBytes, CutRSSBytes: cut.RSSBytes,
		RSSRatio:     float64(cut.RSSBytes) / float64(whole.RSSBytes),
		CutPeakBytes: cut.PeakBytes, Intermediates: cut.IntermediateBytes,
	}, nil
}

// RunProbe does one measurement in a process of its own, which command starts.
// The process is killed when ctx ends.
func RunProbe(ctx context.Context, command []string, spec ProbeSpec) (r ProbeResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	input, err := json.Marshal(spec)
	if err != nil {
		return r, err
	}
	var out, failure bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &failure
	cmd.Env = os.Environ()
	if strings.HasPrefix(spec.CUDA.Device, "GPU-") || strings.HasPrefix(spec.CUDA.Device, "MIG-") {
		// CUDA shows a process no MIG device but the first unless it names one.
		cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+spec.CUDA.Device)
	}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		if text := strings.TrimSpace(failure.String()); text != "" {
			return r, fmt.Errorf("%s (%w)", strings.TrimPrefix(text, "overlapd: "), err)
		}
		return r, err
	}
	return r, json.Unmarshal(out.Bytes(), &r)
}
