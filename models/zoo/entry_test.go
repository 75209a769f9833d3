package zoo

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
)

func lookup(t *testing.T, name string) Entry {
	t.Helper()
	e, ok := Lookup(name)
	if !ok {
		t.Fatalf("the zoo has no %s", name)
	}
	return e
}

func TestNames(t *testing.T) {
	names := Names()
	for _, want := range []string{"resnet50", "resnet101", "resnet152", "inception_v3", "vgg16", "vgg19", "bert"} {
		if !slices.Contains(names, want) || !slices.Contains(names, want+"-fp16") {
			t.Errorf("%s is not there in both precisions", want)
		}
	}
	seen := make(map[string]bool)
	for _, name := range names {
		if seen[name] {
			t.Errorf("two entries are called %s", name)
		}
		seen[name] = true
		if e := lookup(t, name); e.Name != name || e.Summary == "" {
			t.Errorf("%s: got %+v", name, e)
		}
	}
	if _, ok := Lookup("resnet51"); ok {
		t.Error("found a model that nobody described")
	}
}

// The numbers are those of the reference implementations.
func TestParams(t *testing.T) {
	for name, want := range map[string]int64{
		"resnet50":     25_557_032,
		"resnet101":    44_549_160,
		"resnet152":    60_192_808,
		"inception_v3": 23_834_568,
		"vgg16":        138_357_544,
		"vgg19":        143_667_240,
		"bert":         109_482_240,
		"bert-fp16":    109_482_240,
		"tiny_add":     0,
	} {
		if got := lookup(t, name).Params; got != want {
			t.Errorf("%s has %d parameters, want %d", name, got, want)
		}
	}
}

func describe(specs []models.TensorSpec) string {
	parts := make([]string, len(specs))
	for i, s := range specs {
		parts[i] = s.Name + " " + s.Type.String()
	}
	return strings.Join(parts, " ")
}

// TestCatalog compares what a file consists of with testdata. A difference
// means that files with this recipe version, built before, are not what is
// built now: raise recipeVersion, then run with -update.
func TestCatalog(t *testing.T) {
	var got strings.Builder
	for _, name := range Names() {
		e := lookup(t, name)
		g := e.graph()
		l := encode(g, 1)
		fmt.Fprintf(&got, "%s recipe=%d nodes=%d tensors=%d bytes=%d made=%s\n",
			name, recipeVersion, len(g.nodes), len(g.tensors), l.size, digest(ingredients(l)))
	}
	path := filepath.Join("testdata", "catalog.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("the catalog changed (-want +got):\n%s", diff)
	}
}

// ingredients returns all that decides over the bytes of a file, with the
// fills in place of the weights.
func ingredients(l *layout) []byte {
	all := slices.Clone(l.head)
	for _, t := range l.tensors {
		all = fmt.Appendf(append(all, t.head...), "%v", t.fill)
	}
	return all
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// The digests pin how weights are made. As above, other digests need another
// recipe version.
func TestWriteIsDeterministic(t *testing.T) {
	for name, want := range map[string]string{
		"tiny_add":      "1d44d4656bcdeec5",
		"tiny_identity": "97ac815b29777415",
		"tiny_mlp":      "ff9642f9f6b9b0d2",
		"tiny_cnn":      "85a594d3e7d5f48c",
		"tiny_bert":     "f0b9da19c156bb9e",
	} {
		e := lookup(t, name)
		first, second, other := write(t, e, 7), write(t, e, 7), write(t, e, 8)
		if !bytes.Equal(first, second) {
			t.Errorf("%s: two files of one seed differ", name)
		}
		if bytes.Equal(first, other) {
			t.Errorf("%s: files of two seeds are equal", name)
		}
		if int64(len(first)) != e.Size() || len(other) != len(first) {
			t.Errorf("%s: %d and %d bytes written, Size says %d", name, len(first), len(other), e.Size())
		}
		if got := digest(first); got != want {
			t.Errorf("%s: the bytes changed: %q, want %q", name, got, want)
		}
	}
}

func write(t *testing.T, e Entry, seed uint64) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := encode(e.graph(), seed).write(&b, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
