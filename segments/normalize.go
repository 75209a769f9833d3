package segments

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/models"
)

// minIRVersion is the first version of the format in which an initializer is a
// constant unless it is listed as an input. Older files list all of them,
// which forbids ONNX Runtime to fold or fuse them.
const minIRVersion = 4

// bridgeSuffix ends the name of an output that is an input or an initializer
// of the graph, so that some operator makes every output.
const bridgeSuffix = "/overlapd_output"

// Field numbers of NodeProto.
const (
	nodeInput  = 1
	nodeOutput = 2
	nodeOpType = 4
)

// normalize returns f in the form that is optimized and cut: all weights
// inside, none of them an input, and every output made by an operator.
func normalize(f *models.File) ([]byte, error) {
	parts := f.Parts()
	parts.IRVersion = max(f.IRVersion, minIRVersion)
	parts.Inputs, parts.Outputs, parts.Initializers = nil, nil, nil
	for _, in := range f.Graph.FeedInputs() {
		parts.Inputs = append(parts.Inputs, in.Raw)
	}
	for _, init := range f.Graph.Initializers {
		if init.Sparse {
			continue
		}
		raw := init.Raw
		if init.External != nil {
			var err error
			if raw, err = f.AppendInline(nil, init); err != nil {
				return nil, err
			}
		}
		parts.Initializers = append(parts.Initializers, raw)
	}
	bridgeOutputs(parts, &f.Graph)
	return parts.Append(make([]byte, 0, parts.Size())), nil
}

// bridgeOutputs adds the outputs of g, behind an operator of their own where
// no node of g makes them.
func bridgeOutputs(parts *models.Parts, g *models.Graph) {
	made := map[string]bool{}
	for i := range g.Nodes {
		for _, name := range g.Nodes[i].Outputs {
			made[name] = true
		}
	}
	for _, out := range g.Outputs {
		if made[out.Name] {
			parts.Outputs = append(parts.Outputs, out.Raw)
			continue
		}
		name := out.Name + bridgeSuffix
		parts.Nodes = append(parts.Nodes, identity(out.Name, name))
		parts.Outputs = append(parts.Outputs, models.AppendValueInfo(nil, name, out.Type))
	}
}

func identity(in, out string) []byte {
	var n []byte
	n = protowire.AppendTag(n, nodeInput, protowire.BytesType)
	n = protowire.AppendString(n, in)
	n = protowire.AppendTag(n, nodeOutput, protowire.BytesType)
	n = protowire.AppendString(n, out)
	n = protowire.AppendTag(n, nodeOpType, protowire.BytesType)
	return protowire.AppendString(n, "Identity")
}
