package zoo

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// ErrUnknown is returned when the zoo has no model of the given name.
var ErrUnknown = errors.New("no such model in the zoo")

// Entry is one model of the zoo.
type Entry struct {
	Name      string              `json:"name"`
	Precision string              `json:"precision"` // the type of weights and activations: "fp32", "fp16" or, without weights, "int32"
	Summary   string              `json:"summary"`   // one line for people
	Inputs    []models.TensorSpec `json:"-"`
	Outputs   []models.TensorSpec `json:"-"`
	Params    int64               `json:"params"` // trained parameters; running statistics and constants do not count

	build func(*graph)
}

// Names returns the names of all entries, in the order in which they are
// best shown.
func Names() []string {
	names := make([]string, len(catalog))
	for i, b := range catalog {
		names[i] = b.name
	}
	return names
}

// Lookup returns the entry called name.
func Lookup(name string) (Entry, bool) {
	i := slices.IndexFunc(catalog, func(b blueprint) bool { return b.name == name })
	if i < 0 {
		return Entry{}, false
	}
	b := catalog[i]
	e := Entry{Name: b.name, Precision: b.precision, Summary: b.summary, build: b.build}
	g := e.graph()
	e.Inputs, e.Outputs, e.Params = g.inputs, g.outputs, g.params()
	return e, true
}

// Size returns the size of the entry's file in bytes. It is the same for
// every seed.
func (e Entry) Size() int64 {
	if e.build == nil {
		return 0
	}
	return encode(e.graph(), 0).size
}

// Write writes the entry's file to w.
func (e Entry) Write(w io.Writer, seed uint64) error {
	if e.build == nil {
		return fmt.Errorf("%w: %q", ErrUnknown, e.Name)
	}
	return encode(e.graph(), seed).write(w, nil)
}

func (e Entry) graph() *graph {
	g := &graph{name: e.Name, elem: models.Float32}
	if e.Precision == half {
		g.elem = models.Float16
	}
	e.build(g)
	return g
}

// The precisions of the zoo, as Entry.Precision names them.
const (
	full  = "fp32"
	half  = "fp16"
	whole = "int32"
)

// blueprint is one line of the catalog: an entry before its graph is built.
type blueprint struct {
	name      string
	precision string
	summary   string
	build     func(*graph)
}

// catalog lists the zoo in the order in which it is shown.
var catalog = slices.Concat(
	inBothPrecisions(
		blueprint{name: "resnet50", summary: "ResNet-50 v1.5, 224x224 images", build: resnet(3, 4, 6, 3)},
		blueprint{name: "resnet101", summary: "ResNet-101 v1.5, 224x224 images", build: resnet(3, 4, 23, 3)},
		blueprint{name: "resnet152", summary: "ResNet-152 v1.5, 224x224 images", build: resnet(3, 8, 36, 3)},
		blueprint{name: "inception_v3", summary: "Inception v3 without auxiliary head, 299x299 images", build: inceptionV3},
		blueprint{name: "vgg16", summary: "VGG-16 without batch normalization, 224x224 images", build: vgg(2, 2, 3, 3, 3)},
		blueprint{name: "vgg19", summary: "VGG-19 without batch normalization, 224x224 images", build: vgg(2, 2, 4, 4, 4)},
		blueprint{name: "bert", summary: "BERT base, up to 512 tokens", build: bertBase.build},
	),
	[]blueprint{
		{"tiny_add", whole, "sum and difference of two inputs, named as in Triton's simple example", tinyAdd},
		{"tiny_identity", full, "returns its input", tinyIdentity},
		{"tiny_mlp", full, "two dense layers", tinyMLP},
		{"tiny_cnn", full, "three convolutions with a residual, 32x32 images", tinyCNN},
		{"tiny_bert", full, "two BERT layers of 32 hidden units, up to 64 tokens", bertTiny.build},
	},
)

// inBothPrecisions returns each blueprint twice: as fp32 under its name, and as
// fp16 with a suffix.
func inBothPrecisions(prints ...blueprint) []blueprint {
	both := make([]blueprint, 0, 2*len(prints))
	for _, b := range prints {
		b.precision = full
		both = append(both, b)
		b.precision = half
		b.name += "-fp16"
		b.summary += ", half precision"
		both = append(both, b)
	}
	return both
}
