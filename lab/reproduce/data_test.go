package reproduce

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
)

func readDrawn(t *testing.T) (*data, string) {
	t.Helper()
	dir := drawnData(t)
	d, err := readData(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d, dir
}

func TestReadData(t *testing.T) {
	d, dir := readDrawn(t)
	if len(d.pairs.Rows) != 330 || len(d.quad.Rows) != 165 || len(d.authors[fullLoad]) != 2 || d.minutes == nil || d.solo != nil {
		t.Errorf("%d pairs, %d quadruplets, %d results, minutes %v, solo times %v", len(d.pairs.Rows), len(d.quad.Rows), len(d.authors[fullLoad]), d.minutes, d.solo)
	}
	// The folder itself, or the one around it.
	inner, err := readData(filepath.Join(dir, abacusFolder))
	if err != nil || inner.sha256 != d.sha256 || inner.minutes == nil {
		t.Errorf("the inner folder: %v, hash %s, want %s", err, inner.sha256, d.sha256)
	}
}

func TestHashFollowsContent(t *testing.T) {
	d, dir := readDrawn(t)
	for _, name := range []string{loadsFile, "abacus-a100/" + calmFile, "abacus-a100/pairs/a.csv", "abacus-a100/quad/all.csv"} {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(text), "\n")
		writeFile(t, path, strings.Join(lines[:len(lines)-2], ""))
		changed, err := readData(dir)
		if err != nil || changed.sha256 == d.sha256 {
			t.Errorf("%s with a line less: %v, hash %s", name, err, changed.sha256)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if same, err := readData(dir); err != nil || same.sha256 != d.sha256 {
		t.Errorf("what was changed and changed back: %v", err)
	}
}

func TestSoloTimes(t *testing.T) {
	dir := drawnData(t)
	path := filepath.Join(dir, abacusFolder, soloFile)
	writeFile(t, path, "model,batch,seq_len,min_ms\nresnet50,4,0,8\nvgg16,4,0,3\nbert,4,8,9\n")
	d, err := readData(dir)
	if err != nil || len(d.solo) != 3 {
		t.Fatalf("%v, %+v", err, d.solo)
	}
	together, err := d.beyondPairs()
	if err != nil {
		t.Fatal(err)
	}
	if list := d.soloOf(together); len(list) != 1 || list[0].Model != "bert" {
		t.Errorf("of the quadruplets' models: %+v", list)
	}
	writeFile(t, path, "model,batch,seq_len,min_ms\nresnet50,4,0,fast\n")
	if _, err := readData(dir); err == nil || !strings.Contains(err.Error(), soloFile+":2") {
		t.Errorf("a time that is none: %v", err)
	}
}

func TestHalve(t *testing.T) {
	d, _ := readDrawn(t)
	a, b := halve(d.pairs, 1)
	if len(a.Rows) != 165 || len(b.Rows) != 165 || a.Check() != nil || b.Check() != nil {
		t.Fatalf("%d and %d rows", len(a.Rows), len(b.Rows))
	}
	if both, err := training.Merge(a, b); err != nil || len(d.pairs.Without(both).Rows) != 0 {
		t.Errorf("rows are lost: %v", err)
	}
	if c, _ := halve(d.pairs, 1); len(a.Without(c).Rows) != 0 {
		t.Error("one seed gives two halves")
	}
	if c, _ := halve(d.pairs, 2); len(a.Without(c).Rows) < 45 {
		t.Error("two seeds give nearly one half")
	}
}

func TestBeyondPairsOfData(t *testing.T) {
	d, _ := readDrawn(t)
	together, err := d.beyondPairs()
	if err != nil || together.Check() != nil {
		t.Fatal(err, together.Check())
	}
	var names []string
	for _, m := range together.Models {
		names = append(names, m.Name)
	}
	if want := []string{"bert", "resnet101", "resnet152", "vgg19"}; !slices.Equal(names, want) {
		t.Errorf("models %q, want %q", names, want)
	}
	// All groups of resnet101 and bert, and those of resnet101 alone.
	alone := 0
	for i := range d.pairs.Rows {
		row := &d.pairs.Rows[i]
		if !slices.ContainsFunc(row.Group.Spans, func(s models.Span) bool { return d.pairs.Models[s.Service].Name == "resnet50" }) {
			alone++
		}
	}
	if len(together.Rows) != 165+alone || alone <= 165 {
		t.Errorf("%d rows, of which %d are of pairs", len(together.Rows), alone)
	}
}

func TestSizesBeyondPairs(t *testing.T) {
	d := &training.Dataset{Models: []training.Model{{Name: "bert", Operators: 2}, {Name: "resnet101", Operators: 2}, {Name: "vgg19", Operators: 2}}}
	add := func(sizes ...int) {
		var row training.Row
		for i, size := range sizes {
			row.Group.Spans = append(row.Group.Spans, models.Span{Service: models.ServiceID(i), End: 1, Size: size})
		}
		d.Rows = append(d.Rows, row)
	}
	add(16, 1, 32)
	add(4, 2, 4)
	add(1, 2, 8)
	add(8, 4) // no group of more than two
	got := (&stock{measured: d}).sizes()
	for model, want := range map[string][]int{"bert": {4, 16}, "resnet101": {1, 2}, "vgg19": {4, 8, 32}} {
		if !slices.Equal(got[model], want) {
			t.Errorf("%s: %v, want %v", model, got[model], want)
		}
	}
	if text := unusualSizes(got); !strings.Contains(text, "Res101 [1 2]") || !strings.Contains(text, "Bert [4 16]") {
		t.Error(text)
	}
	if text := unusualSizes(map[string][]int{"resnet101": pairSizes, "resnet152": pairSizes, "vgg19": pairSizes, "bert": pairSizes}); strings.Contains(text, "but for") {
		t.Error(text)
	}
}
