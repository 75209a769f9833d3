package models

// limits bounds what a reader of ONNX files accepts. Unless a field says otherwise, a count
// covers the whole file with its subgraphs and functions. The limits, not the claims of a
// file, therefore bound the memory that parsing takes.
type limits struct {
	// FileBytes limits the model file.
	FileBytes int64
	// ExternalBytes limits each file of external data, and ExternalFiles their number.
	ExternalBytes int64
	ExternalFiles int
	// DenseBytes limits a sparse tensor in its dense form.
	DenseBytes int64

	// Nodes also applies after all functions are expanded.
	Nodes int
	// Depth limits the nesting of graphs, of types, and of functions.
	Depth      int
	Attributes int
	// References counts node inputs and outputs.
	References int
	// Tensors counts initializers and tensors in attributes.
	Tensors int
	// ValueInfos counts graph inputs, outputs and declared values.
	ValueInfos int
	Functions  int
	// Opsets counts the operator sets that the model imports.
	Opsets int
	// Rank limits the dimensions of one tensor, and Dims those of all tensors and types.
	Rank int
	Dims int
	// NameBytes limits one name, and StringBytes the sum of all distinct names.
	NameBytes   int
	StringBytes int
}

// defaultLimits returns limits far above what real models need: the largest published graphs
// have tens of thousands of nodes. FileBytes is protobuf's own limit of two GiB.
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
