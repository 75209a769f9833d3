package training

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
)

func TestMerge(t *testing.T) {
	a := &Dataset{Device: "d", Models: []Model{{Name: "m", Operators: 4}, {Name: "z", Hash: "h", Operators: 9}},
		Rows: []Row{{Group: group(span(0, 0, 4, 1, 0), span(1, 1, 2, 2, 8)), Median: 1, Mean: 1}}}
	b := &Dataset{Models: []Model{{Name: "b", Operators: 2}, {Name: "m", Operators: 6}, {Name: "z", Operators: 5}},
		Rows: []Row{{Group: group(span(1, 0, 6, 1, 0)), Median: 2, Mean: 2}, {Group: group(span(0, 0, 2, 1, 0), span(2, 0, 5, 1, 0)), Median: 3, Mean: 3}}}
	want := &Dataset{
		Device: "d",
		Models: []Model{{Name: "b", Operators: 2}, {Name: "m", Operators: 6}, {Name: "z", Hash: "h", Operators: 9}},
		Rows: []Row{
			{Group: group(span(1, 0, 4, 1, 0), span(2, 1, 2, 2, 8)), Median: 1, Mean: 1},
			{Group: group(span(1, 0, 6, 1, 0)), Median: 2, Mean: 2},
			{Group: group(span(0, 0, 2, 1, 0), span(2, 0, 5, 1, 0)), Median: 3, Mean: 3},
		},
	}
	got, err := Merge(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	got.Rows[0].Group.Spans[0].End = 1
	if a.Rows[0].Group.Spans[0].End != 4 {
		t.Error("the result shares memory with what was merged")
	}
	for i, name := range []string{"b", "m", "z"} {
		if got.Model(name) != i {
			t.Errorf("%s is at %d", name, got.Model(name))
		}
	}
	if got.Model("c") != -1 {
		t.Error("found a model that is not there")
	}
}

func TestMergeRefuses(t *testing.T) {
	one := func(device, hash string, operators int) *Dataset {
		return &Dataset{Device: device, Models: []Model{{Name: "m", Hash: hash, Operators: operators}}}
	}
	for name, pair := range map[string][2]*Dataset{
		"devices": {one("a", "", 1), one("b", "", 1)},
		"hashes":  {one("", "x", 1), one("", "y", 1)},
		"cuts":    {one("", "x", 1), one("", "x", 2)},
		"ends":    {one("", "x", 1), one("", "", 2)},
	} {
		for _, order := range [][2]*Dataset{pair, {pair[1], pair[0]}} {
			if _, err := Merge(order[0], order[1]); !errors.Is(err, errMixed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	many := &Dataset{Models: []Model{{Name: "m", Operators: 1}}, Rows: make([]Row, maxRows/2+1)}
	if _, err := Merge(many, many); !errors.Is(err, ErrLimit) {
		t.Errorf("too many rows: %v", err)
	}
}

func TestCheck(t *testing.T) {
	sound := func() *Dataset {
		return &Dataset{Models: []Model{{Name: "a", Operators: 3}, {Name: "b", Operators: 2}},
			Rows: []Row{{Group: group(span(0, 0, 3, 1, 0), span(1, 0, 2, 1, 0)), Median: 1, Mean: 1}}}
	}
	if err := sound().Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(d *Dataset){
		"order of models": func(d *Dataset) { d.Models[0].Name = "c" },
		"same model":      func(d *Dataset) { d.Models[0].Name = "b" },
		"no name":         func(d *Dataset) { d.Models[0].Name = "" },
		"space":           func(d *Dataset) { d.Models[0].Name = "a " },
		"operators":       func(d *Dataset) { d.Models[0].Operators = 0 },
		"no span":         func(d *Dataset) { d.Rows[0].Group.Spans = nil },
		"order of spans":  func(d *Dataset) { s := d.Rows[0].Group.Spans; s[0], s[1] = s[1], s[0] },
		"model of a span": func(d *Dataset) { d.Rows[0].Group.Spans[1].Service = 2 },
		"no model":        func(d *Dataset) { d.Rows[0].Group.Spans[0].Service = -1 },
		"empty span":      func(d *Dataset) { d.Rows[0].Group.Spans[0].Start = 3 },
		"end":             func(d *Dataset) { d.Rows[0].Group.Spans[0].End = 4 },
		"size":            func(d *Dataset) { d.Rows[0].Group.Spans[0].Size = 0 },
		"sequence length": func(d *Dataset) { d.Rows[0].Group.Spans[0].SeqLen = -1 },
		"repeats":         func(d *Dataset) { d.Rows[0].Repeats = -1 },
		"median":          func(d *Dataset) { d.Rows[0].Median = 0 },
		"mean":            func(d *Dataset) { d.Rows[0].Mean = math.Inf(1) },
		"std":             func(d *Dataset) { d.Rows[0].Std = math.NaN() },
		"large":           func(d *Dataset) { d.Rows[0].Mean = 2 * MaxMicros },
	} {
		d := sound()
		spoil(d)
		if err := d.Check(); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (&Dataset{Models: make([]Model, MaxModels+1)}).Check(); !errors.Is(err, ErrLimit) {
		t.Errorf("too many models: %v", err)
	}
	if err := (&Dataset{Rows: make([]Row, maxRows+1)}).Check(); !errors.Is(err, ErrLimit) {
		t.Errorf("too many rows: %v", err)
	}
	wide := sound()
	wide.Rows[0].Group.Spans = make([]models.Span, MaxSpans+1)
	if err := wide.Check(); !errors.Is(err, ErrFormat) {
		t.Errorf("too many spans: %v", err)
	}
}

func TestReadPath(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadPath(dir); !errors.Is(err, ErrFormat) {
		t.Errorf("a folder without files: %v", err)
	}
	if _, err := ReadPath(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	write("2.csv", pairHeader+"a,0,5,1,0,b,0,5,1,0,2,2,1\n")
	write("1.CSV", pairHeader+"c,0,6,1,0,b,0,6,1,0,1,1,1\n")
	write("3.txt", "something else")
	d, err := ReadPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Rows) != 2 || d.Rows[0].Median != 1 || len(d.Models) != 3 || d.Models[1] != (Model{Name: "b", Operators: 6}) {
		t.Errorf("got %+v", d)
	}
	if d, err := ReadPath(filepath.Join(dir, "2.csv")); err != nil || len(d.Rows) != 1 {
		t.Errorf("one file: %v, %v", d, err)
	}
	if _, err := ReadPath(filepath.Join(dir, "3.txt")); !errors.Is(err, ErrFormat) {
		t.Errorf("a file of something else: %v", err)
	}
}
