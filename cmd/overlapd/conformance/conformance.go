package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ErrNoModels is returned when the folders hold no model.
var ErrNoModels = errors.New("no models found")

// DefaultTimeout is how long one model may take where nothing else is said.
const DefaultTimeout = 5 * time.Minute

// Options says what is compared.
type Options struct {
	Data    []string      // folders of models
	Child   []string      // the command whose process calls Child
	Timeout time.Duration // for one model, 0 for DefaultTimeout

	Progress func(done, total int) // may be nil
}

// Outcome tells how a model did.
type Outcome string

// The outcomes.
const (
	Equal   Outcome = "equal"   // cut at every node it gives what ONNX Runtime gives
	Skipped Outcome = "skipped" // ONNX Runtime itself does not run it correctly, or its inputs cannot be made
	Failed  Outcome = "failed"
)

// Result is what became of one model.
type Result struct {
	Model     string  `json:"model"`
	Outcome   Outcome `json:"outcome"`
	Reason    string  `json:"reason,omitempty"`
	Operators int     `json:"operators,omitempty"`
	Close     bool    `json:"close,omitempty"`   // equal within the tolerance only, as are two runs of ONNX Runtime
	Checked   bool    `json:"checked,omitempty"` // ONNX Runtime was compared with outputs that came with the model
}

// Report sums up what became of all models.
type Report struct {
	Models    int      `json:"models"`
	Plain     int      `json:"plain_correct"` // ONNX Runtime runs them correctly
	Checked   int      `json:"plain_checked"` // of those, compared with outputs that came with the model
	Equal     int      `json:"cut_equal"`
	Close     int      `json:"cut_close"` // of those, within the tolerance only
	Operators int      `json:"operators"`
	Failures  []Result `json:"failures"`
	Skips     []Result `json:"skipped"`
}

// OK reports whether every model that ONNX Runtime runs correctly runs
// correctly when cut, and that there is one.
func (r *Report) OK() bool { return r.Plain > 0 && r.Equal == r.Plain }

func (r *Report) add(one Result) {
	r.Operators += one.Operators
	switch one.Outcome {
	case Skipped:
		r.Skips = append(r.Skips, one)
		return
	case Equal:
		r.Equal++
	default:
		r.Failures = append(r.Failures, one)
	}
	r.Plain++
	if one.Close {
		r.Close++
	}
	if one.Checked {
		r.Checked++
	}
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "models found                    %6d\n", r.Models)
	fmt.Fprintf(w, "ONNX Runtime runs correctly     %6d  (%d compared with the outputs they come with)\n", r.Plain, r.Checked)
	fmt.Fprintf(w, "cut at every node, equal        %6d  (%d of them within the tolerance only)\n", r.Equal, r.Close)
	fmt.Fprintf(w, "operators                       %6d\n", r.Operators)
	for _, f := range r.Failures {
		fmt.Fprintf(w, "FAILED  %s: %s\n", f.Model, f.Reason)
	}
}

// Run compares all models below the folders.
func Run(ctx context.Context, o Options) (*Report, error) {
	models, err := find(o.Data)
	if err != nil {
		return nil, err
	}
	if len(models) == 0 {
		return nil, fmt.Errorf("%w below %q", ErrNoModels, o.Data)
	}
	cache, err := os.MkdirTemp("", "overlapd-conformance-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(cache)
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	r := &Report{Models: len(models), Failures: []Result{}, Skips: []Result{}}
	p := parent{options: o, cache: cache, report: r}
	for len(models) > 0 {
		done, err := p.lead(ctx, models)
		if err != nil {
			return r, err
		}
		models = models[done:]
	}
	return r, nil
}
