package zoo

import (
	"errors"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// errUnknown is returned when the zoo has no model with the given name.
var errUnknown = errors.New("no such model in the zoo")

// Entry is one model of the zoo.
type Entry struct {
	Name string `json:"name"`
	// Precision is the type of weights and activations: "fp32" or "fp16", and "int32" for a
	// model without weights.
	Precision string `json:"precision"`
	// Summary describes the model in one line.
	Summary string              `json:"summary"`
	Inputs  []models.TensorSpec `json:"-"`
	Outputs []models.TensorSpec `json:"-"`
	// Params counts the trained parameters, without running statistics and constants.
	Params int64 `json:"params"`

	build func(*graph)
	// beside returns the files that lie beside the model, by their paths, or is nil. A model
	// that has such files has a folder of its own.
	beside func() map[string]any
}

// Names returns the names of all entries, in the order in which a list should show them.
func Names() []string {
	names := make([]string, len(catalog))
	for i, e := range catalog {
		names[i] = e.Name
	}
	return names
}

// Lookup returns the entry with the given name. It builds the graph to fill in the fields that
// follow from it, which is cheap because no weights are generated.
func Lookup(name string) (Entry, bool) {
	i := slices.IndexFunc(catalog, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		return Entry{}, false
	}
	e := catalog[i]
	g := e.graph()
	e.Inputs, e.Outputs, e.Params = g.inputs, g.outputs, g.params()
	return e, true
}

// Size returns the size of the entry's file in bytes. It does not depend on the seed.
func (e Entry) Size() int64 { return encode(e.graph(), 0).size }

func (e Entry) graph() *graph {
	g := &graph{name: e.Name, elem: models.Float32, nodeNames: map[string]int{}, constants: map[string]bool{}}
	if e.Precision == half {
		g.elem = models.Float16
	}
	e.build(g)
	return g
}

// The values of Entry.Precision.
const (
	full  = "fp32"
	half  = "fp16"
	whole = "int32"
)

// catalog lists the zoo in the order of Names. Lookup adds the fields that follow from the
// graphs.
var catalog = slices.Concat(
	inBothPrecisions("resnet50", "ResNet-50 v1.5, 224x224 images", resnet(3, 4, 6, 3)),
	inBothPrecisions("resnet101", "ResNet-101 v1.5, 224x224 images", resnet(3, 4, 23, 3)),
	inBothPrecisions("resnet152", "ResNet-152 v1.5, 224x224 images", resnet(3, 8, 36, 3)),
	inBothPrecisions("inception_v3", "Inception v3 without auxiliary head, 299x299 images", inceptionV3),
	inBothPrecisions("vgg16", "VGG-16 without batch normalization, 224x224 images", vgg(2, 2, 3, 3, 3)),
	inBothPrecisions("vgg19", "VGG-19 without batch normalization, 224x224 images", vgg(2, 2, 4, 4, 4)),
	inBothPrecisions("bert", "BERT base, up to 512 tokens", bertBase.build),
	[]Entry{
		{Name: "tiny_add", Precision: whole, Summary: "sum and difference of two inputs, named as in Triton's simple example", build: tinyAdd},
		{Name: "tiny_identity", Precision: full, Summary: "returns its input", build: tinyIdentity},
		{Name: "tiny_mlp", Precision: full, Summary: "two dense layers", build: tinyMLP},
		{Name: "tiny_cnn", Precision: full, Summary: "three convolutions with a residual, 32x32 images", build: tinyCNN},
		{Name: "tiny_bert", Precision: full, Summary: "two BERT layers of 32 hidden units, up to 64 tokens", build: bertTiny.build},
		{Name: "text_encoder", Precision: full, Summary: "four BERT layers with tokenizer and mean pooling, for embeddings", build: textEncoder, beside: besideEncoder},
		{Name: "text_modern", Precision: full, Summary: "as text_encoder, with rotary positions and local attention by turns", build: textModern, beside: besideEncoder},
		{Name: "text_reranker", Precision: full, Summary: "four BERT layers with tokenizer and one score for a pair of texts", build: textScorer("relevance"), beside: besideScorer("relevance")},
		{Name: "text_classifier", Precision: full, Summary: "four BERT layers with tokenizer and three labels", build: textScorer(textLabels...), beside: besideScorer(textLabels...)},
	},
)

// inBothPrecisions returns two entries for a model: fp32 under its name, and fp16 with the
// suffix -fp16.
func inBothPrecisions(name, summary string, build func(*graph)) []Entry {
	return []Entry{
		{Name: name, Precision: full, Summary: summary, build: build},
		{Name: name + "-fp16", Precision: half, Summary: summary + ", half precision", build: build},
	}
}
