package reproduce

import (
	"errors"
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
