package models

import (
	"fmt"
	"math/bits"
	"time"
)

// Operator is the smallest piece of a model that the daemon can schedule: one node of the
// optimized graph, or several consecutive ones if the model is cut more coarsely.
type Operator struct {
	// Name is the name of its last node.
	Name string
	// Type is the ONNX operator type. The types of several nodes are joined with "+".
	Type string
	// Nodes is the number of nodes of the optimized graph in this operator.
	Nodes int
	// LiveBytes is the size of the intermediates that are alive after the operator, for one
	// query of batch size 1, or -1 if it is not known yet.
	LiveBytes int64
}

// TensorSpec is an input or output of a model as clients see it.
type TensorSpec struct {
	Name string
	Type Type
}

// Model describes an ONNX file.
type Model struct {
	Path string
	// Hash is the SHA-256 sum of the file and its external data, in hexadecimal.
	Hash      string
	Inputs    []TensorSpec
	Outputs   []TensorSpec
	Operators []Operator
}

// Service is a model deployed with a QoS target, or a variant: one of several models that can
// answer the same queries.
type Service struct {
	ID        ServiceID
	Name      string
	Operators int
	QoSTarget time.Duration
	// QueueLimit is the number of queries that may be queued. One more is rejected immediately.
	QueueLimit int
	// MaxBatch is the largest batch that dynamic batching may form; 1 turns batching off.
	MaxBatch int
	// BestEffort services run only in headroom that no other service needs.
	BestEffort bool

	// Ladder restricts batch sizes to the ladder (see [OnLadder]), because the engine has
	// separate sessions for each size.
	Ladder bool `json:",omitempty"`

	// Of names the service that this is a variant of, and is empty for others. A query that
	// arrives for one variant may be answered by any of them. Higher Accuracy is better.
	Of       string  `json:",omitempty"`
	Accuracy float64 `json:",omitempty"`

	// Pipelines are the ways in which its batches may run across several devices. Without any,
	// a batch stays on the device it starts on.
	Pipelines []Pipeline `json:",omitempty"`
}

// OnLadder reports whether a batch size is on the ladder 1, 2, 4, 8 and so on. Some engines
// prepare for a fixed size; cuDNN, for example, plans each convolution. For them a change of
// size costs more than a larger batch saves, so they keep separate sessions for these sizes.
func OnLadder(size int) bool { return size&(size-1) == 0 }

// Rung returns the index on the ladder of the smallest size that is at least size.
func Rung(size int) int { return bits.Len(uint(max(size, 1) - 1)) }

// Pipeline is a way to run a batch across several devices, one after another (PPipe, section 5).
type Pipeline struct {
	// Batch is the planned batch size, which no batch exceeds.
	Batch  int
	Stages []Stage
}

// Stage is the part of a pipeline that runs on one device. It begins where the previous stage
// ends.
type Stage struct {
	// End is the exclusive end of its operators; for the last stage, the number of operators.
	End int
	// Devices are the indices in the pool of the devices that can run the stage.
	Devices []int
	// Move is the time that each query adds to moving the batch to the next stage, and 0 for
	// the last stage.
	Move time.Duration
}

// MiB formats a size in memory for messages, rounded up to whole MiB.
func MiB(bytes int64) string { return fmt.Sprintf("%d MiB", (bytes+1<<20-1)>>20) }
