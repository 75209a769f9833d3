package reproduce

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/training/fit"
)

func TestKeep(t *testing.T) {
	r := &reproduction{options: &Options{Out: t.TempDir()}, data: &data{sha256: "x"}}
	if err := os.Mkdir(filepath.Join(r.options.Out, fittedFolder), 0o755); err != nil {
		t.Fatal(err)
	}
	made := 0
	table := func() (*errorTable, error) {
		made++
		table := newErrorTable(&fit.Report{})
		table.All["network"] = 2.5
		return table, nil
	}
	for range 2 {
		got, err := kept(r, "x", ".json", errorsKind.ReadFile, table)
		if err != nil || got.All["network"] != 2.5 {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if made != 1 {
		t.Errorf("made %d times", made)
	}
	broken := errors.New("broken")
	if _, err := kept(r, "y", ".json", errorsKind.ReadFile, func() (*errorTable, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	writeFile(t, r.path("x", ".json"), "{")
	if _, err := kept(r, "x", ".json", errorsKind.ReadFile, table); err == nil || !strings.Contains(err.Error(), "remove it, and the next run makes it again") {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestPathTellsWhatItDependsOn keeps what was fitted from being used where it
// does not belong.
func TestPathTellsWhatItDependsOn(t *testing.T) {
	path := func(change func(*Options, *data)) string {
		o, d := Options{Out: "out", Seed: 1, Commit: "a"}, data{sha256: "x"}
		change(&o, &d)
		return (&reproduction{options: &o, data: &d}).path("device", ".json")
	}
	plain := path(func(*Options, *data) {})
	if again := path(func(o *Options, _ *data) { o.Seeds, o.Figures = 7, []string{"10"} }); again != plain {
		t.Errorf("%s and %s differ by what does not matter", plain, again)
	}
	for name, change := range map[string]func(*Options, *data){
		"seed":   func(o *Options, _ *data) { o.Seed = 2 },
		"epochs": func(o *Options, _ *data) { o.Epochs = 2 },
		"commit": func(o *Options, _ *data) { o.Commit = "b" },
		"data":   func(_ *Options, d *data) { d.sha256 = "y" },
	} {
		if path(change) == plain {
			t.Errorf("another %s uses the same file", name)
		}
	}
}

func TestLabelsOfSets(t *testing.T) {
	if got := setLabel([]string{"bert", "resnet101", "unknown"}); got != "Res101+Bert+unknown" {
		t.Error(got)
	}
	if compareLabels("Res50+Bert", "Res101+Res152") >= 0 || compareLabels("Res50+VGG16", "Res50+Bert") >= 0 || compareLabels("Bert", "Bert") != 0 {
		t.Error("labels are not in the paper's order")
	}
}
