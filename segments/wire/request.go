package wire

import (
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// LoadSpec is the first message to a worker: which model to load, and how.
type LoadSpec struct {
	Service   string `json:"service"`
	ModelPath string `json:"model_path"`
	CacheDir  string `json:"cache_dir,omitempty"`

	// Threads is the number of intra-op threads of the process; 0 leaves it to the
	// engine. With Spin they spin while they wait.
	Threads int  `json:"threads,omitempty"`
	Spin    bool `json:"spin,omitempty"`

	// OneThread has the worker be ready to run spans on a single thread, too, as a Run
	// may ask for. On a GPU it changes nothing.
	OneThread bool `json:"one_thread,omitempty"`

	// Slow is by which factor operators take longer than they need, on the CPU: the
	// thread that runs them sleeps for the rest. Up to 1 it does not.
	Slow float64 `json:"slow,omitempty"`

	// Moves has the worker map the memory through which batches move to other workers of
	// the service.
	Moves bool `json:"moves,omitempty"`

	// PollNanos is how long the worker polls for the next message before it sleeps.
	PollNanos int64 `json:"poll_nanos,omitempty"`

	// CutTarget is the number of operators to cut the model into, -1 for one at
	// every node. 0 is every node on the CPU; on a GPU it is what the worker
	// chooses as Choose asks, or DefaultCUDATarget where that is nil.
	CutTarget int         `json:"cut_target,omitempty"`
	Choose    *ChooseSpec `json:"choose,omitempty"`

	// MaxBatch is the largest batch that will be run, and IntermediateBytes the
	// budget of all batches together beside the weights, 0 for the engine's default.
	MaxBatch          int   `json:"max_batch,omitempty"`
	IntermediateBytes int64 `json:"intermediate_bytes,omitempty"`

	// TrimNanos is after how long without a message a worker process gives back to
	// the system what it keeps for later batches, 0 for never.
	TrimNanos int64 `json:"trim_nanos,omitempty"`

	// WarmSeqLens are the sequence lengths to warm up with on a GPU; none leaves
	// the choice to the engine. CUDA is nil for the CPU.
	WarmSeqLens []int     `json:"warm_seq_lens,omitempty"`
	CUDA        *CUDASpec `json:"cuda,omitempty"`
}

// CUDASpec configures the use of a GPU by a worker.
type CUDASpec struct {
	// Device is the ordinal or UUID of a GPU or MIG instance, empty for the first
	// that the process sees.
	Device string `json:"device,omitempty"`

	// MemoryBytes limits the memory of the process, 0 to what is free. DoubleArena
	// doubles each growth of the arena, instead of taking what is asked for: only
	// gpu-check compares the two.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	DoubleArena bool  `json:"double_arena,omitempty"`

	// MPS is whether the worker is to be a client of MPS, nil if it may be either. A
	// worker that is not what it is to be ends: it would be taken for another device.
	MPS *bool `json:"mps,omitempty"`

	// TF32 lets products of float32 round their factors to 10 bits.
	TF32 bool `json:"tf32,omitempty"`

	// Graphs runs segments as CUDA graphs where that is possible.
	Graphs bool `json:"graphs,omitempty"`

	// ConvSearch is how cuDNN chooses an algorithm, empty for the default.
	ConvSearch string `json:"conv_search,omitempty"`

	// Spin lets a thread that waits for the GPU spin.
	Spin bool `json:"spin,omitempty"`
}

// QueryTensors are the inputs of one query in the input arena, in the order of the
// model's inputs.
type QueryTensors struct {
	ID     models.QueryID
	Inputs []Tensor
}

// queryBytes is the size of a query without its inputs.
const queryBytes = 8 + 4

// Run asks for operators [Start, End) of a batch. Size is the sum over the queries of
// the batch, Threads how many to run on at most, 0 for all that the worker has, and Stop
// the index of the stop word that ends the run early. The queries of a series run one
// after another, each as a batch of its own would. A batch exists
// in the worker from the Run with Start 0, which alone has queries, until it is
// finished, released, or fails.
//
// The memory of Queries is kept between calls of decode.
type Run struct {
	Round   uint64
	Batch   models.BatchID
	Start   int
	End     int
	Size    int
	Stop    uint32
	Threads uint8
	Series  bool
	Queries []QueryTensors

	inputs []Tensor
	dims   []int64
}

func (m *Run) check() error {
	switch {
	case m.Start < 0 || m.End < m.Start || m.End > maxPosition || m.Size < 0 || m.Size > maxPosition:
		return fmt.Errorf("%w: run of [%d, %d), size %d", ErrMessage, m.Start, m.End, m.Size)
	case m.Stop >= StopWords:
		return fmt.Errorf("%w: run with stop word %d", ErrMessage, m.Stop)
	case m.Series && m.Start != 0:
		return fmt.Errorf("%w: a series from operator %d", ErrMessage, m.Start)
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
	dst = append(dst, m.Threads, 0)
	if m.Series {
		dst[len(dst)-1] = 1
	}
	return appendList(dst, m.Queries, MaxQueries, appendQuery)
}

func appendQuery(dst []byte, q *QueryTensors) ([]byte, error) {
	dst = le.AppendUint64(dst, uint64(q.ID))
	return appendList(dst, q.Inputs, MaxTensors, appendTensor)
}

func (m *Run) decode(payload []byte) error {
	d := decoder{data: payload}
	m.Round = d.uint64()
	m.Batch = models.BatchID(d.uint64())
	m.Start = int(d.uint32())
	m.End = int(d.uint32())
	m.Size = int(d.uint32())
	m.Stop = d.uint32()
	m.Threads = d.uint8()
	m.Series = d.bool()
	m.Queries, m.inputs, m.dims = d.queries(m.Queries, m.inputs[:0], m.dims[:0])
	if err := d.done(KindRun); err != nil {
		return err
	}
	return m.check()
}

// queries reads a list of queries into list, and appends their inputs and shapes.
func (d *decoder) queries(list []QueryTensors, inputs []Tensor, dims []int64) ([]QueryTensors, []Tensor, []int64) {
	n := d.count(MaxQueries, queryBytes)
	list = slices.Grow(list[:0], n)[:n]
	for i := range list {
		list[i].ID = models.QueryID(d.uint64())
		start := len(inputs)
		inputs, dims = d.tensors(inputs, dims)
		list[i].Inputs = inputs[start:len(inputs):len(inputs)]
	}
	return list, inputs, dims
}

// tensors reads a list of tensors and appends them, and their shapes to dims.
func (d *decoder) tensors(list []Tensor, dims []int64) ([]Tensor, []int64) {
	for range d.count(MaxTensors, tensorBytes) {
		var t Tensor
		dims = d.tensor(&t, dims)
		list = append(list, t)
	}
	return list, dims
}

// Release makes the worker forget a batch that will not go on.
type Release struct {
	Batch models.BatchID `json:"batch"`
}

// Quit asks the worker to close its engine and exit.
type Quit struct{}

const (
	// DefaultCUDATarget is the number of segments of a model on a GPU by default,
	// and the limit for one without memory of its own: each segment has handles of
	// the libraries and launches of its own.
	DefaultCUDATarget = 24

	// FinestChoice is the largest number of segments that a worker tries.
	FinestChoice = 64
)

// ChooseSpec asks a worker to choose the number of segments of its model by measuring
// what cutting costs on its device: from Finest segments on, 0 for DefaultCUDATarget,
// until BudgetNanos are over. A Known choice for the same model is taken as it is.
type ChooseSpec struct {
	Known       *CutChoice `json:"known,omitempty"`
	Finest      int        `json:"finest,omitempty"`
	BudgetNanos int64      `json:"budget_nanos,omitempty"`
}

// CutChoice is the number of segments that a worker has chosen, and why.
type CutChoice struct {
	// Hash and ORTVersion identify what was cut. MaxBatch, Finest and SeqLen are
	// the largest batch, the most segments and the sequence length that were tried.
	Hash       string `json:"hash"`
	ORTVersion string `json:"ort_version"`
	MaxBatch   int    `json:"max_batch"`
	Finest     int    `json:"finest"`
	SeqLen     int    `json:"seq_len"`

	// Target is the choice in the sense of LoadSpec.CutTarget, 1 for no cut. Limit
	// is the cost of a cut, relative to the whole, that was allowed.
	Target int     `json:"target"`
	Limit  float64 `json:"limit"`

	// Costs are the measurements, the finest cut first.
	Costs  []CutCost `json:"costs"`
	Reason string    `json:"reason"`
}

// CutCost is the cost of a cut for one batch size: medians of runs that took turns.
type CutCost struct {
	Segments   int   `json:"segments"`
	Batch      int   `json:"batch"`
	WholeNanos int64 `json:"whole_ns"`
	CutNanos   int64 `json:"cut_ns"`
}

// Relative returns the added time of the cut as a part of the time of the whole.
func (c *CutCost) Relative() float64 {
	return float64(c.CutNanos)/float64(max(c.WholeNanos, 1)) - 1
}

// Measured reports whether the choice rests on measurements, and so is worth keeping.
func (c *CutChoice) Measured() bool { return c != nil && len(c.Costs) > 0 }
