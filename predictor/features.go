package predictor

import "github.com/overlapd/overlapd/models"

// FeatureSet names how a group is turned into the inputs of a network.
type FeatureSet string

// The feature sets.
const (
	FeaturesPaper FeatureSet = "paper"  // Abacus, section 5.3: bitmap of models, and four numbers for each slot
	FeaturesModel FeatureSet = "models" // a block of inputs for each model, and the solo times of the group
)

// Features says what a network sees of a group. It is part of the predictor
// file. Training and serving use the same Encode.
type Features struct {
	Set    FeatureSet     `json:"set"`
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
	MaxSeqLen int        `json:"max_seq_len"` // longest sequence among the rows
	Costs     []CostCell `json:"costs,omitempty"`
}

// CostCell is what each operator of a model costs alone for one batch size and
// sequence length, measured or inferred from groups.
type CostCell struct {
	Size   int       `json:"size"`
	SeqLen int       `json:"seq_len"`
	Micros []float64 `json:"micros"` // by operator
}

// Width returns the number of inputs.
func (f *Features) Width() int { panic("not written") }

// Encode sets the inputs, of which there are Width, to what the network sees
// of a group, and returns the time in microseconds that the network's output
// is relative to. The order of the spans changes nothing. It does not
// allocate.
func (f *Features) Encode(g models.Group, inputs []float32) (baseMicros float64) {
	panic("not written")
}
