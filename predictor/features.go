package predictor

import (
	"errors"
	"fmt"

	"github.com/overlapd/overlapd/models"
)

// The ways in which a group is turned into the inputs of a network: Features.Set.
const (
	FeaturesPaper = "paper"  // Abacus, section 5.3: bitmap of models, and four numbers for each slot
	FeaturesModel = "models" // a block of inputs for each model, and what the group costs
)

// Limits of features.
const (
	MaxSpans         = 16 // of a group
	MaxFeatureModels = 256
	maxCostMicros    = float64(MaxTime) / 1e3
)

// ErrFeatures is returned when features are contradictory, absurd or of an
// unknown set.
var ErrFeatures = errors.New("unusable features")

// Features describe what a network sees of a group. It is part of the predictor
// file. An [Encoder] does the work, in training and in serving.
type Features struct {
	Set    string         `json:"set"`
	Spans  int            `json:"spans"` // most spans of a group
	Models []FeatureModel `json:"models"`
}

// FeatureModel is a model that a network knows. A span names it by its
// position, as its Service.
type FeatureModel struct {
	Name      string     `json:"name"`
	Hash      string     `json:"hash,omitempty"`
	Operators int        `json:"operators"`
	MaxSize   int        `json:"max_size"`    // largest batch size among the rows
	MaxSeqLen int        `json:"max_seq_len"` // longest sequence among the rows, 0 if it has none
	Costs     []CostCell `json:"costs,omitempty"`
}

// CostCell is what each operator of a model costs for one batch size and
// sequence length, measured or inferred from groups.
type CostCell struct {
	Size   int       `json:"size"`
	SeqLen int       `json:"seq_len"`
	Micros []float64 `json:"micros"` // that the operator takes alone
	Work   []float64 `json:"work"`   // that it keeps the device busy, so that nothing overlaps it; sharing may make that more
}

// Width returns the number of inputs.
func (f *Features) Width() int {
	if f.Set == FeaturesPaper {
		return len(f.Models) + paperSlot*f.Spans
	}
	width := groupInputs
	for i := range f.Models {
		width += f.Models[i].width()
	}
	return width
}

// Covers reports whether a group is of the kind that the network was trained
// on: known models, each at most once, with operators that they have, and
// neither more spans, larger batches nor longer sequences than among the rows.
func (f *Features) Covers(g models.Group) bool {
	if len(g.Spans) == 0 || len(g.Spans) > f.Spans {
		return false
	}
	for i := range g.Spans {
		s := &g.Spans[i]
		if s.Service < 0 || int(s.Service) >= len(f.Models) || !f.Models[s.Service].covers(s) {
			return false
		}
		for j := range i {
			if g.Spans[j].Service == s.Service {
				return false
			}
		}
	}
	return true
}

func (m *FeatureModel) covers(s *models.Span) bool {
	return s.Start >= 0 && s.Start < s.End && s.End <= m.Operators &&
		s.Size >= 1 && s.Size <= m.MaxSize && s.SeqLen >= 0 && s.SeqLen <= m.MaxSeqLen
}

// Validate returns an error that wraps [ErrFeatures] unless an encoder can use
// the features.
func (f *Features) Validate() error {
	if err := f.validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrFeatures, err)
	}
	return nil
}

func (f *Features) validate() error {
	switch {
	case f.Set != FeaturesPaper && f.Set != FeaturesModel:
		return fmt.Errorf("unknown set %q", f.Set)
	case f.Spans < 1 || f.Spans > MaxSpans:
		return fmt.Errorf("groups of %d spans; the limit is %d", f.Spans, MaxSpans)
	case len(f.Models) == 0 || len(f.Models) > MaxFeatureModels:
		return fmt.Errorf("%d models; the limit is %d", len(f.Models), MaxFeatureModels)
	}
	names := make(map[string]bool, len(f.Models))
	for i := range f.Models {
		m := &f.Models[i]
		if m.Name == "" || names[m.Name] {
			return fmt.Errorf("model %d is named %q, as another or not at all", i, m.Name)
		}
		names[m.Name] = true
		if err := m.validate(f.Set); err != nil {
			return fmt.Errorf("model %s: %w", m.Name, err)
		}
	}
	return nil
}

func (m *FeatureModel) validate(set string) error {
	switch {
	case m.Operators < 1 || m.Operators > MaxOperators:
		return fmt.Errorf("%d operators", m.Operators)
	case m.MaxSize < 1 || m.MaxSize > MaxSize:
		return fmt.Errorf("batch size %d", m.MaxSize)
	case m.MaxSeqLen < 0 || m.MaxSeqLen > MaxSeqLen:
		return fmt.Errorf("sequence length %d", m.MaxSeqLen)
	case set == FeaturesModel && len(m.Costs) == 0:
		return errors.New("no costs")
	case len(m.Costs) > MaxCells:
		return fmt.Errorf("%d cells of costs; the limit is %d", len(m.Costs), MaxCells)
	}
	seen := make(map[[2]int]bool, len(m.Costs))
	for i := range m.Costs {
		c := &m.Costs[i]
		if seen[[2]int{c.Size, c.SeqLen}] {
			return fmt.Errorf("two cells of size %d, sequence length %d", c.Size, c.SeqLen)
		}
		seen[[2]int{c.Size, c.SeqLen}] = true
		if err := c.validate(m.Operators); err != nil {
			return fmt.Errorf("cell of size %d, sequence length %d: %w", c.Size, c.SeqLen, err)
		}
	}
	return nil
}

func (c *CostCell) validate(operators int) error {
	switch {
	case c.Size < 1 || c.Size > MaxSize || c.SeqLen < 0 || c.SeqLen > MaxSeqLen:
		return errors.New("out of range")
	case len(c.Micros) != operators || len(c.Work) != operators:
		return fmt.Errorf("costs of %d and work of %d operators for %d", len(c.Micros), len(c.Work), operators)
	}
	for i, micros := range c.Micros {
		// Comparisons with NaN are false.
		if !(micros > 0 && micros <= maxCostMicros && c.Work[i] >= 0 && c.Work[i] <= maxCostMicros) {
			return fmt.Errorf("operator %d costs %v µs, %v of work", i, micros, c.Work[i])
		}
	}
	return nil
}
