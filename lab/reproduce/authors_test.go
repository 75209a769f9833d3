package reproduce

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestColocation(t *testing.T) {
	for name, want := range map[string][]string{
		"Res50+Res101":    {"resnet50", "resnet101"},
		"Res50Res101":     {"resnet50", "resnet101"},
		"Res152IncepV3":   {"resnet152", "inception_v3"},
		"VGG16VGG19":      {"vgg16", "vgg19"},
		"IncepV3+Bert":    {"inception_v3", "bert"},
		"Res101VGG19Bert": {"resnet101", "vgg19", "bert"},
	} {
		got, err := colocation(name)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if again, err := colocation(label(got)); err != nil || !slices.Equal(again, want) {
			t.Errorf("%s: its label %s gives %q, %v", name, label(got), again, err)
		}
	}
	for _, name := range []string{"", "Res", "Res50+", "Res50-Bert", "resnet50+bert", "+Bert", "Res50++Bert"} {
		if got, err := colocation(name); err == nil {
			t.Errorf("%q gives %q", name, got)
		}
	}
}

func parseAuthors(t *testing.T, text string) (authorsResults, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.csv")
	writeFile(t, path, text)
	return readAuthors(path)
}

func TestParseAuthors(t *testing.T) {
	got, err := parseAuthors(t, drawnResults("Res50+Bert", "VGG16VGG19"))
	if err != nil {
		t.Fatal(err)
	}
	want := measured{tail: 1.3, answered: 500, violations: 0.6}
	if len(got) != 2 || len(got["VGG16+VGG19"]) != 4 || got["Res50+Bert"]["sjf-authors"] != want {
		t.Errorf("%+v", got)
	}
}

func TestParseAuthorsRefuses(t *testing.T) {
	header := strings.Join(authorsColumns(), ",") + "\n"
	line := func(name, first string) string {
		return header + name + "," + first + strings.Repeat(",0.5", 11) + "\n"
	}
	for text, want := range map[string]string{
		"":                       "x.csv: unusable data: the file is empty",
		header:                   "x.csv: unusable data: there are columns, but no row below",
		"colocation,FCFS_tail\n": "x.csv:1: unusable data: column 3, FCFS_throughput, is missing",
		strings.Replace(header, "SJF_tail", "tail", 1):          `x.csv:1: unusable data: column 5 is "tail" and must be SJF_tail`,
		strings.TrimSpace(header) + ",more\n":                   `column 14, "more", is one too many`,
		header + "Res50+Bert,1\n":                               "x.csv:2: unusable data: 2 fields, the first line names 13 columns",
		line("Res50+Bert", "-1"):                                `column 2 (FCFS_tail) is "-1"`,
		line("Res50+Bert", "NaN"):                               `column 2 (FCFS_tail) is "NaN"`,
		line("Res50+Bert", "many"):                              `column 2 (FCFS_tail) is "many"`,
		line("Alexnet", "1"):                                    `"Alexnet" does not name models`,
		drawnResults("Res50Bert", "Res50+Bert"):                 "x.csv:3: unusable data: Res50+Bert has two lines",
		header + "Res50+Bert,1,1001" + strings.Repeat(",0", 10): `column 3 (FCFS_throughput) is "1001": it must be a number from 0 to 1000`,
		header + "Res50+Bert,1,1,1.5" + strings.Repeat(",0", 9): `column 4 (FCFS_violation) is "1.5": it must be a number from 0 to 1`,
		header + strings.Repeat("\n", 2<<20):                    "more than 1048576 bytes",
		header + "\"Res50":                                      "x.csv:2: unusable data",
	} {
		_, err := parseAuthors(t, text)
		if !errors.Is(err, errData) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func TestReadAuthorsWithoutFile(t *testing.T) {
	if got, err := readAuthors(filepath.Join(t.TempDir(), "absent.csv")); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestPairs(t *testing.T) {
	targets := func(load float64) (text string) {
		for _, d := range allPairs(load) {
			text += fmt.Sprintf("%s %d %d\n", d.label(), d.target.Milliseconds(), len(d.models))
		}
		return text
	}
	want := `Res50+Res101 100 2
Res50+Res152 150 2
Res50+IncepV3 100 2
Res50+VGG16 50 2
Res50+VGG19 50 2
Res50+Bert 75 2
Res101+Res152 160 2
Res101+IncepV3 150 2
Res101+VGG16 90 2
Res101+VGG19 80 2
Res101+Bert 130 2
Res152+IncepV3 150 2
Res152+VGG16 150 2
Res152+VGG19 150 2
Res152+Bert 150 2
IncepV3+VGG16 80 2
IncepV3+VGG19 80 2
IncepV3+Bert 80 2
VGG16+VGG19 30 2
VGG16+Bert 60 2
VGG19+Bert 60 2
`
	if got := targets(calmLoad); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := targets(fullLoad); got != strings.Replace(want, "VGG19 30", "VGG19 40", 1) {
		t.Errorf("at the full load\n%s", got)
	}
}

func TestBeyondPairs(t *testing.T) {
	var labels []string
	for _, d := range beyondPairs(calmLoad, map[string][]int{"bert": {1}}) {
		labels = append(labels, d.label())
		if d.sizes[len(d.sizes)-1] != nil != slices.Contains(d.models, "bert") {
			t.Errorf("%s has sizes %v", d.label(), d.sizes)
		}
	}
	want := []string{"Res101+Res152+VGG19", "Res101+Res152+Bert", "Res101+VGG19+Bert", "Res152+VGG19+Bert", "Res101+Res152+VGG19+Bert"}
	if !slices.Equal(labels, want) {
		t.Errorf("%q", labels)
	}
}
