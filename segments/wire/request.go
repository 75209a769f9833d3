package wire

import (
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// LoadSpec is the first message to a worker. It says which model to load and how.
type LoadSpec struct {
	Service   string `json:"service"`
	ModelPath string `json:"model_path"`
	CacheDir  string `json:"cache_dir,omitempty"`

	// OpLibraries are shared libraries with custom operators, which the worker loads.
	OpLibraries []string `json:"op_libraries,omitempty"`

	// Threads is the number of intra-op threads of the process; with 0 the engine
	// chooses. Spin makes them spin while they wait for work.
	Threads int  `json:"threads,omitempty"`
	Spin    bool `json:"spin,omitempty"`

	// Units is how many runs the worker performs at once, each on a share of the units
	// of its device, such as cores. With values up to 1, and on a GPU, every run has
	// the whole device.
	Units int `json:"units,omitempty"`

	// Cores lists the CPUs that are the units. If it is not empty, a run on a part of them
	// stays on those that Run.On names.
	Cores []int `json:"cores,omitempty"`

	// Moves makes the worker map the memory through which batches move to other
	// workers of the service.
	Moves bool `json:"moves,omitempty"`

	// PollNanos is how long the worker polls for the next message before it sleeps.
	PollNanos int64 `json:"poll_nanos,omitempty"`

	// CutTarget is the number of segments to cut the model into, -1 to cut at every
	// node. With 0 the CPU cuts at every node; on a GPU the worker chooses as Choose
	// asks, or uses DefaultCUDATarget if that is nil.
	CutTarget int         `json:"cut_target,omitempty"`
	Choose    *ChooseSpec `json:"choose,omitempty"`

	// MaxBatch is the largest batch that will run. IntermediateBytes limits the
	// memory of all batches together, besides the weights; with 0 the engine chooses.
	MaxBatch          int   `json:"max_batch,omitempty"`
	IntermediateBytes int64 `json:"intermediate_bytes,omitempty"`

	// TrimNanos is how long a worker process must be idle before it returns to the
	// system the memory that it keeps for later batches, 0 for never.
	TrimNanos int64 `json:"trim_nanos,omitempty"`

	// WarmSeqLens lists the sequence lengths to warm up with on a GPU. If it is
	// empty, the engine chooses. CUDA is nil for the CPU.
	WarmSeqLens []int     `json:"warm_seq_lens,omitempty"`
	CUDA        *CUDASpec `json:"cuda,omitempty"`
}

// CUDASpec configures how a worker uses a GPU.
type CUDASpec struct {
	// Device is the ordinal or UUID of a GPU or MIG instance, empty for the first
	// one visible to the process.
	Device string `json:"device,omitempty"`

	// MemoryBytes limits the memory of the process, 0 for what is free.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`

	// MPS says whether the worker must be an MPS client, nil if it may be either. If
	// it is not as required, the worker exits, because its latencies would be
	// recorded for a different device.
	MPS *bool `json:"mps,omitempty"`

	// TF32 allows float32 matrix products and convolutions to round their factors to
	// a mantissa of 10 bits.
	TF32 bool `json:"tf32,omitempty"`

	// Graphs runs segments as CUDA graphs where possible.
	Graphs bool `json:"graphs,omitempty"`

	// ConvSearch selects how cuDNN chooses an algorithm, empty for the default.
	ConvSearch string `json:"conv_search,omitempty"`

	// Spin makes a thread spin while it waits for the GPU.
	Spin bool `json:"spin,omitempty"`
}

// QueryTensors are the inputs of one query in the input arena, in the order of the
// model's inputs.
type QueryTensors struct {
	ID     models.QueryID
	Inputs []models.Tensor
}

// queryBytes is the encoded size of a query without its inputs.
const queryBytes = 8 + 4

// Run asks the worker to run operators [Start, End) of a batch. A batch exists in the
// worker from the Run with Start 0, which alone has queries, until it is finished,
// released, or fails.
//
// decode reuses the memory of Queries.
type Run struct {
	Round uint64
	Batch models.BatchID
	Start int
	End   int

	// Size is the size of one tensor of the batch. More queries than that run back to back,
	// each as if it were a batch.
	Size int

	// Stop is the index of the stop word that ends the run early.
	Stop uint32

	// Share is on how many of LoadSpec.Units the run takes place, beside runs on the
	// others. With 0 it has all of them, and waits until no other run is in progress.
	Share int

	// On has a bit for each position in LoadSpec.Cores on which the run takes place; 0 leaves
	// that to the system. Left to itself, it often wakes two runs on one core while another
	// one is idle.
	On uint64

	Queries []QueryTensors

	inputs []models.Tensor
	dims   []int64
}

func (m *Run) check() error {
	switch {
	case m.Start < 0 || m.End < m.Start || m.End > maxPosition || m.Size < 0 || m.Size > maxPosition:
		return fmt.Errorf("%w: run of [%d, %d), size %d", ErrMessage, m.Start, m.End, m.Size)
	case m.Share < 0 || m.Share > maxUnits:
		return fmt.Errorf("%w: run on %d units", ErrMessage, m.Share)
	case m.Stop >= StopWords:
		return fmt.Errorf("%w: run with stop word %d", ErrMessage, m.Stop)
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
	dst = le.AppendUint32(dst, uint32(m.Share))
	dst = le.AppendUint64(dst, m.On)
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
	m.Share = int(d.uint32())
	m.On = d.uint64()
	m.Queries, m.inputs, m.dims = d.queries(m.Queries, m.inputs[:0], m.dims[:0])
	if err := d.done(KindRun); err != nil {
		return err
	}
	return m.check()
}

// queries reads a list of queries into list. It appends their inputs and shapes to
// inputs and dims.
func (d *decoder) queries(list []QueryTensors, inputs []models.Tensor, dims []int64) ([]QueryTensors, []models.Tensor, []int64) {
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

// tensors reads a list of tensors. It appends them to list, and their shapes to dims.
func (d *decoder) tensors(list []models.Tensor, dims []int64) ([]models.Tensor, []int64) {
	for range d.count(MaxTensors, tensorBytes) {
		var t models.Tensor
		dims = d.tensor(&t, dims)
		list = append(list, t)
	}
	return list, dims
}

// Release makes the worker forget a paused batch.
type Release struct {
	Batch models.BatchID `json:"batch"`
}

// Quit asks the worker to close its engine and exit.
type Quit struct{}

const (
	// DefaultCUDATarget is the default number of segments of a model on a GPU. It is
	// also the limit for a model whose service has no memory limit of its own, because
	// each segment needs library handles and kernel launches of its own.
	DefaultCUDATarget = 24

	// FinestChoice limits the number of segments that a worker tries.
	FinestChoice = 64
)

// ChooseSpec asks a worker to choose the number of segments of its model by measuring
// what cutting costs on its device. It starts with Finest segments, 0 for
// DefaultCUDATarget, and stops after BudgetNanos. If Known is a choice for the same
// model, the worker uses that without measuring.
type ChooseSpec struct {
	Known       *CutChoice `json:"known,omitempty"`
	Finest      int        `json:"finest,omitempty"`
	BudgetNanos int64      `json:"budget_nanos,omitempty"`
}

// CutChoice is the number of segments that a worker has chosen, with the reason.
type CutChoice struct {
	// Hash and ORTVersion identify the model that was cut. MaxBatch, Finest and
	// SeqLen are the largest batch, the most segments and the sequence length that
	// were tried.
	Hash       string `json:"hash"`
	ORTVersion string `json:"ort_version"`
	MaxBatch   int    `json:"max_batch"`
	Finest     int    `json:"finest"`
	SeqLen     int    `json:"seq_len"`

	// Target is the choice, with the meaning of LoadSpec.CutTarget; 1 means no cut.
	// Limit is the relative cost that was allowed.
	Target int     `json:"target"`
	Limit  float64 `json:"limit"`

	// Costs are the measurements, starting with the finest cut.
	Costs  []CutCost `json:"costs"`
	Reason string    `json:"reason"`
}

// CutCost is the cost of a cut for one batch size. The times are medians of runs of the
// whole model and of the cut model in alternation.
type CutCost struct {
	Segments   int   `json:"segments"`
	Batch      int   `json:"batch"`
	WholeNanos int64 `json:"whole_ns"`
	CutNanos   int64 `json:"cut_ns"`
}

// Relative returns the additional time of the cut relative to the whole model's.
func (c *CutCost) Relative() float64 {
	return float64(c.CutNanos)/float64(max(c.WholeNanos, 1)) - 1
}

// Measured reports whether the choice is based on measurements, so that it is worth
// keeping.
func (c *CutChoice) Measured() bool { return c != nil && len(c.Costs) > 0 }
