package training

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func readSolo(t *testing.T, text string) ([]SoloTime, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "solo.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return ReadSoloFile(path)
}

func TestReadSoloFaults(t *testing.T) {
	const header = "model,batch,seq_len,min_ms\n"
	for text, want := range map[string]string{
		"":                                  "solo.csv: unusable measurements: the file is empty",
		"model,batch,seq_len\n":             "solo.csv:1: unusable measurements: no column min_ms among",
		header + "a,1,0,5\na,0,0,5\n":       `solo.csv:3: unusable measurements: column 2 (batch) is "0"`,
		header + "a,1,-1,5\n":               "solo.csv:2",
		header + "a,1,0,NaN\n":              "solo.csv:2",
		header + "a,1,0,-5\n":               "solo.csv:2",
		header + "a,one,0,5\n":              "solo.csv:2",
		header + ",1,0,5\n":                 "solo.csv:2",
		header + "a,1,0\n":                  "solo.csv:2",
		header + "a,1,0,5\na,1,0,6\n":       "solo.csv:3: unusable measurements: a with batch size 1 and sequence length 0 stands twice",
		header + strings.Repeat("a", 2<<20): "too many measurements",
	} {
		_, err := readSolo(t, text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "solo.csv:") {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
}
