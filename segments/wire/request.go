package wire

import (
	"fmt"
	"github.com/overlapd/overlapd/models"
)

// LoadSpec is which model a worker loads, and how.
type LoadSpec struct {
	Service           string      `json:"service"`
	ModelPath         string      `json:"model_path"`
	CacheDir          string      `json:"cache_dir,omitempty"`
	Threads           int         `json:"threads,omitempty"`            // intra-op threads of the process, 0 lets the engine choose
	Spin              bool        `json:"spin,omitempty"`               // waiting threads spin
	PollNanos         int64       `json:"poll_nanos,omitempty"`         // how long to look for the next message before sleeping
	CutTarget         int         `json:"cut_target,omitempty"`         // operators wanted, 0 for every node, on a GPU for DefaultCUDATarget; -1 for every node there too
	Choose            *ChooseSpec `json:"choose,omitempty"`             // how the worker chooses where CutTarget is 0, nil for not at all
	MaxBatch          int         `json:"max_batch,omitempty"`          // largest batch that will be run
	IntermediateBytes int64       `json:"intermediate_bytes,omitempty"` // budget of all paused batches together, 0 for none
	WarmSeqLens       []int       `json:"warm_seq_lens,omitempty"`      // sequence lengths that are warmed up on a GPU, none for one of our choice
	CUDA              *CUDASpec   `json:"cuda,omitempty"`               // nil for the CPU
}

// CUDASpec is how a model uses the GPU that its process sees.
type CUDASpec struct {
	Device            string `json:"device,omitempty"`              // ordinal or UUID of a GPU or MIG instance, "" for the first that is visible
	MemoryBytes       int64  `json:"memory_bytes,omitempty"`        // what the process may take in all, 0 for what is free
	ExtendAsRequested bool   `json:"extend_as_requested,omitempty"` // the arena grows by what is asked for, instead of doubling
	TF32              bool   `json:"tf32,omitempty"`                // float32 products may round their factors to 10 bits
	ConvSearch        string `json:"conv_search,omitempty"`         // how cuDNN chooses, "" for what suits most
	Spin              bool   `json:"spin,omitempty"`                // a thread that waits for the GPU burns its core
}

// Load is the first message to a worker.
type Load struct{ Spec LoadSpec }

// Kind returns KindLoad.
func (*Load) Kind() Kind { return KindLoad }

// Decode implements Message.
func (m *Load) Decode(payload []byte) error {
	m.Spec = LoadSpec{}
	return decodeJSON(payload, KindLoad, &m.Spec)
}

func (m *Load) appendPayload(dst []byte) ([]byte, error) { return appendJSON(dst, &m.Spec) }

// QueryTensors are the inputs of one query, in the order of the model's
// inputs, in the input arena.
type QueryTensors struct {
	ID     models.QueryID
	Inputs []Tensor
}

const queryBytes = 8 + 4 // without its inputs

// Run asks for operators [Start, End) of a batch. A batch exists in the worker
// from the Run that has queries until it is finished, released, or fails.
type Run struct {
	Round   uint64
	Batch   models.BatchID
	Start   int
	End     int
	Size    int            // of the batch: the sum over its queries
	Stop    uint32         // index of the stop word that ends this run early
	Queries []QueryTensors // only if the batch starts here, Start being 0

	inputs []Tensor // memory of Queries, kept between calls of Decode
	dims   []int64
}

// Kind returns KindRun.
func (*Run) Kind() Kind { return KindRun }

func (m *Run) check() error {
	switch {
	case m.Start < 0 || m.End < m.Start || m.End > maxPosition || m.Size < 0 || m.Size > maxPosition:
		return fmt.Errorf("%w: run of [%d, %d), size %d", ErrMessage, m.Start, m.End, m.Size)
	case m.Stop >= StopWords:
		return fmt.Errorf("%w: run with stop word %d", ErrMessage, m.Stop)
	case len(m.Queries) > MaxQueries:
		return fmt.Errorf("%w: run of %d queries", ErrMessage, len(m.Queries))
	case (len(m.Queries) > 0) != (m.Start == 0):
		return fmt.Errorf("%w: run from operator %d with %d queries", ErrMessage, m.Start, len(m.Queries))
	}
	return nil
}

func (m *Run) appendPayload(dst []byte) ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	dst = le.AppendUint64(dst, m.Round)
	dst = le.AppendUint64(dst, uint64(m.Batch))
	dst = le.AppendUint32(dst, uint32(m.Start))
	dst = le.AppendUint32(dst, uint32(m.End))
	dst = le.AppendUint32(dst, uint32(m.Size))
	dst = le.AppendUint32(dst, m.Stop)
	dst = le.AppendUint32(dst, uint32(len(m.Queries)))
	for i := range m.Queries {
		var err error
		if dst, err = appendQuery(dst, &m.Queries[i]); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func appendQuery(dst []byte, q *QueryTensors) ([]byte, error) {
	if len(q.Inputs) > MaxTensors {
		return nil, fmt.Errorf("%w: query of %d inputs", ErrMessage, len(q.Inputs))
	}
	dst = le.AppendUint64(dst, uint64(q.ID))
	dst = le.AppendUint32(dst, uint32(len(q.Inputs)))
	for i := range q.Inputs {
		var err error
		if dst, err = appendTensor(dst, &q.Inputs[i]); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// Decode implements Message.
func (m *Run) Decode(payload []byte) error {
	d := decoder{data: payload}
	m.Round = d.uint64()
	m.Batch = models.BatchID(d.uint64())
	m.Start = d.position()
	m.End = d.position()
	m.Size = d.position()
	m.Stop = d.uint32()
	m.Queries = resize(m.Queries, d.count(MaxQueries, queryBytes))
	m.inputs, m.dims = m.inputs[:0], m.dims[:0]
	for i := range m.Queries {
		m.decodeQuery(&d, &m.Queries[i])
	}
	if err := d.done(KindRun); err != nil {
		return err
	}
	return m.check()
}

func (m *Run) decodeQuery(d *decoder, q *QueryTensors) {
	q.ID = models.QueryID(d.uint64())
	n := d.count(MaxTensors, tensorBytes)
	start := len(m.inputs)
	for range n {
		var t Tensor
		m.dims = d.tensor(&t, m.dims)
		m.inputs = append(m.inputs, t)
	}
	q.Inputs = m.inputs[start:len(m.inputs):len(m.inputs)]
}

// Release makes the worker forget a batch that is not going on.
type Release struct{ Batch models.BatchID }

// Kind returns KindRelease.
func (*Release) Kind() Kind { return KindRelease }

// Decode implements Message.
func (m *Release) Decode(payload []byte) error {
	d := decoder{data: payload}
	m.Batch = models.BatchID(d.uint64())
	return d.done(KindRelease)
}

func (m *Release) appendPayload(dst []byte) ([]byte, error) {
	return le.AppendUint64(dst, uint64(m.Batch)), nil
}

// Quit asks the worker to close its engine and exit.
type Quit struct{}

// Kind returns KindQuit.
func (*Quit) Kind() Kind { return KindQuit }

// Decode implements Message.
func (*Quit) Decode(payload []byte) error {
	d := decoder{data: payload}
	return d.done(KindQuit)
}

func (*Quit) appendPayload(dst []byte) ([]byte, error) { return dst, nil }

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
