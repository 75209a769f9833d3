package models

// Operators returns the operators of the graph as it stands in the file, one
// for each node. Their live bytes are not known.
func (f *File) Operators() []Operator {
	operators := make([]Operator, len(f.Graph.Nodes))
	for i := range f.Graph.Nodes {
		n := &f.Graph.Nodes[i]
		operators[i] = Operator{Name: n.Name, Type: n.OpType, Nodes: 1, LiveBytes: -1}
	}
	return operators
}

// Model returns what the file tells of the model, under the name that it
// shall have. It reads all data, for the hash.
func (f *File) Model(name string) (*Model, error) {
	hash, err := f.Hash()
	if err != nil {
		return nil, err
	}
	return &Model{
		Name:      name,
		Path:      f.Path,
		Hash:      hash,
		Inputs:    specs(f.Graph.FeedInputs()),
		Outputs:   specs(f.Graph.Outputs),
		Operators: f.Operators(),
	}, nil
}

func specs(values []ValueInfo) []TensorSpec {
	s := make([]TensorSpec, len(values))
	for i, v := range values {
		s[i] = TensorSpec{Name: v.Name, Type: v.Type}
	}
	return s
}
