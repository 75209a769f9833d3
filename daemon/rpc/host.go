package rpc

import (
	"context"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// Host is what the server asks of the rest of the daemon. Its methods are
// called from many goroutines at once.
type Host interface {
	// Live reports whether the scheduler makes progress.
	Live() bool

	// Ready reports whether every service can answer queries.
	Ready() bool

	// Identity tells what the daemon says of itself.
	Identity() Identity

	// Models returns every service in the order of the configuration.
	Models() []Model

	// Infer answers a query, or fails with a *Fault. The memory of the query
	// is the host's until it returns; that of the answer is the caller's. A
	// query whose context ends is cancelled, and answered soon after.
	Infer(context.Context, *Query) (Answer, error)
}

// Identity is what the daemon says of itself.
type Identity struct {
	Name       string
	Version    string
	Extensions []string
}

// Query is an inference request that has been read.
type Query struct {
	Model    string
	Version  string // "" for the only one
	ID       string // the client's name for it
	Timeout  time.Duration
	Priority int
	Inputs   []Tensor // in the order of the request
	Outputs  []string // asked for, in the order of the answer; none for all
}

// Tensor is an input or output. Data holds its elements little endian, row by
// row; an element of type BYTES stands after four bytes of length.
type Tensor struct {
	Name  string
	Type  models.DataType
	Shape []int64
	Data  []byte
}

// Answer is what became of a query.
type Answer struct {
	Version string
	Outputs []Tensor
}

// Model is a service as clients may know it.
type Model struct {
	Name       string
	Version    string
	Ready      bool
	Loaded     bool // the fields below are known
	Platform   string
	Inputs     []query.Port
	Outputs    []query.Port
	Batched    bool // the first dimension of all ports is the batch
	MaxBatch   int  // largest batch dimension of a query, if it is batched
	Merged     bool // queries are merged into batches
	Parameters map[string]string
	Stats      query.Counts
}
