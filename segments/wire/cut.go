package wire

// DefaultCUDATarget is how many segments a model is cut into on a GPU if nothing
// else is said, and at most unless it has memory of its own: each has handles of
// the libraries, and launches of its own.
const DefaultCUDATarget = 24

// FinestChoice is the largest number of segments that is tried.
const FinestChoice = 64

// ChooseSpec asks a worker to choose into how many segments its model is cut,
// by measuring what cutting costs on its device.
type ChooseSpec struct {
	Known       *CutChoice `json:"known,omitempty"`        // what was chosen before: it is taken if it is of this model, nothing is measured then
	Finest      int        `json:"finest,omitempty"`       // segments that are tried at most, 0 for DefaultCUDATarget
	BudgetNanos int64      `json:"budget_nanos,omitempty"` // after which no further cut is tried
}

// CutChoice is into how many segments a model is cut, and why.
type CutChoice struct {
	Hash       string    `json:"hash"`        // of the model
	ORTVersion string    `json:"ort_version"` // that ran it
	MaxBatch   int       `json:"max_batch"`   // the largest batch that was measured
	Finest     int       `json:"finest"`      // segments that were tried at most
	SeqLen     int       `json:"seq_len"`     // that was measured, of a model that has one
	Target     int       `json:"target"`      // what to cut it into, as LoadSpec.CutTarget has it; 1 for not at all
	Limit      float64   `json:"limit"`       // what a cut may cost, relative to the whole
	Costs      []CutCost `json:"costs"`       // as measured, the finest first; none if nothing could be
	Reason     string    `json:"reason"`
}

// CutCost is what a cut costs with one batch: medians of runs that took turns.
type CutCost struct {
	Segments   int   `json:"segments"`
	Batch      int   `json:"batch"`
	WholeNanos int64 `json:"whole_ns"`
	CutNanos   int64 `json:"cut_ns"`
}

// Relative returns by which part of the whole's time the cut takes longer.
func (c *CutCost) Relative() float64 {
	return float64(c.CutNanos)/float64(max(c.WholeNanos, 1)) - 1
}

// Measured reports whether the choice is worth keeping: it comes of measuring.
func (c *CutChoice) Measured() bool { return c != nil && len(c.Costs) > 0 }
