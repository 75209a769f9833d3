package reproduce

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
