package models

// Limits bounds what a reader of ONNX files accepts. Counts hold for the
// whole file, subgraphs and functions included, unless they say otherwise, so
// the memory that a parsed file takes is bounded by them and not by what the
// file claims.
type limits struct {
	FileBytes     int64 // the model file
	ExternalBytes int64 // one file of external data
	ExternalFiles int   // files of external data
	DenseBytes    int64 // a sparse tensor once it is spread out

	Nodes       int // also after all functions are expanded
	Depth       int // graphs in graphs, types in types, functions in functions
	Attributes  int
	References  int // node inputs and outputs
	Tensors     int // initializers and tensors in attributes
	ValueInfos  int // graph inputs, outputs and declared values
	Functions   int
	Opsets      int // operator sets that the model imports
	Rank        int // dimensions of one tensor
	Dims        int // dimensions of all tensors and types
	NameBytes   int // one name
	StringBytes int // all distinct names
}

// defaultLimits returns limits that real models stay far below: the largest
// published graphs have some ten thousand nodes, and protobuf itself ends at
// two gibibytes.
func defaultLimits() limits {
	return limits{
		FileBytes:     2<<30 - 1,
		ExternalBytes: 256 << 30,
		ExternalFiles: 4096,
		DenseBytes:    1 << 30,

		Nodes:       200_000,
		Depth:       16,
		Attributes:  500_000,
		References:  2_000_000,
		Tensors:     400_000,
		ValueInfos:  200_000,
		Functions:   10_000,
		Opsets:      1_000,
		Rank:        64,
		Dims:        1_000_000,
		NameBytes:   4096,
		StringBytes: 64 << 20,
	}
}
