package zoo

import (
	"fmt"
	"io"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// Entry is one model of the zoo.
type Entry struct {
	Name      string
	Precision string // of weights and activations: "fp32", "fp16" or, without weights, "int32"
	Summary   string // one line for people
	Inputs    []models.TensorSpec
	Outputs   []models.TensorSpec
	Params    int64 // trained parameters; running statistics and constants do not count

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
