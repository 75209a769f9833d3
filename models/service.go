package models

import (
	"fmt"
	"math/bits"
	"time"
)

// Operator is the smallest piece that the daemon can schedule: one node of
// the optimized graph, or a few of them where the cut was made coarser.
type Operator struct {
	Name      string // the name of its last node
	Type      string // ONNX operator types, joined with "+" if it holds several nodes
	Nodes     int    // how many nodes of the optimized graph it holds
	LiveBytes int64  // intermediates alive after it for one query of batch size 1, -1 if not known yet
}

// TensorSpec is an input or output of a model as its clients see it.
type TensorSpec struct {
	Name string
	Type Type
}

// Model is an ONNX file and what was learned of it.
type Model struct {
	Path      string
	Hash      string // sha256 of the file (and of its external data), hex
	Inputs    []TensorSpec
	Outputs   []TensorSpec
	Operators []Operator
}

// Service is a model deployed with a QoS target, or one of several models for the same
// queries: a variant.
type Service struct {
	ID         ServiceID
	Name       string
	Operators  int
	QoSTarget  time.Duration
	QueueLimit int  // queries that may wait; one more is refused at once
	MaxBatch   int  // largest batch that may be formed by merging queries, 1 for none
	BestEffort bool // its queries only fill headroom that no other service needs

	// Ladder is set if queries are merged into batches of sizes on the ladder alone (see
	// [OnLadder]), for each of which the engine has sessions of their own.
	Ladder bool `json:",omitempty"`

	// Of names the service that it is a variant of, and is empty for all others. Whichever
	// variant a query arrives for, one of them answers it. More Accuracy is better.
	Of       string  `json:",omitempty"`
	Accuracy float64 `json:",omitempty"`

	// Pipelines are the ways that its batches may take over several devices. With none a
	// batch stays on the device that it starts on.
	Pipelines []Pipeline `json:",omitempty"`
}

// OnLadder reports whether a batch size is on the ladder: 1, 2, 4, 8 and so on. Engines that
// prepare themselves for one size, as cuDNN plans each convolution, keep sessions for each of
// these, since a change of the size costs more than a larger batch saves.
func OnLadder(size int) bool { return size&(size-1) == 0 }

// Rung returns the position on the ladder of the least size that is at least a given one.
func Rung(size int) int { return bits.Len(uint(max(size, 1) - 1)) }

// Pipeline is a way of a batch over several devices, one after the other (PPipe,
// section 5).
type Pipeline struct {
	Batch  int // the size that it was planned for, which none exceeds
	Stages []Stage
}

// Stage is the part of a pipeline that runs on one device. It begins where the one before
// it ends.
type Stage struct {
	End     int           // the operator that it ends before; of the last stage all operators
	Devices []int         // of the pool, each of which can run it
	Move    time.Duration // what each query adds to the time in which a batch then moves on, 0 for the last
}

// MiB returns a size in memory as messages have it, rounded up.
func MiB(bytes int64) string { return fmt.Sprintf("%d MiB", (bytes+1<<20-1)>>20) }
