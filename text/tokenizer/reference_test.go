package tokenizer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var (
	update = flag.Bool("update", false, "write the golden IDs, from the reference")
	texts  = flag.Int("texts", 2000, "texts that each tokenizer is compared on with the reference")
	seed   = flag.Uint64("seed", 1, "of the texts")
)

// result is what the reference made of a case.
type result struct {
	IDs   []int64 `json:"i"`
	Types []int64 `json:"y,omitempty"`
	Error string  `json:"e,omitempty"`
}

// golden is a case with its result.
type golden struct {
	testCase
	result
}

// unzip returns the text of a file below testdata.
func unzip(tb testing.TB, name string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		tb.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// files returns the names of the tokenizers of testdata.
func files(tb testing.TB) []string {
	tb.Helper()
	found, err := filepath.Glob("testdata/*.json.gz")
	if err != nil || len(found) == 0 {
		tb.Fatal("no tokenizers in testdata: ", err)
	}
	for i, f := range found {
		found[i] = strings.TrimSuffix(filepath.Base(f), ".json.gz")
	}
	return found
}

func open(tb testing.TB, name string) *Tokenizer {
	tb.Helper()
	t, err := Parse(unzip(tb, name+".json.gz"))
	if err != nil {
		tb.Fatal(name, ": ", err)
	}
	return t
}

// differs reports whether a tokenizer does not do what the reference did.
func differs(tb testing.TB, t *Tokenizer, c testCase, want result) bool {
	tb.Helper()
	got, err := t.Encode(context.Background(), c.Text, c.Pair, c.Limit)
	if strings.HasPrefix(want.Error, "Truncation error") { // we truncate all the same
		return err != nil || !got.Cut
	}
	if want.Error != "" || err != nil {
		return (want.Error != "") != (err != nil)
	}
	return !slices.Equal(got.IDs, want.IDs) || want.Types != nil && !slices.Equal(got.Types, want.Types)
}

// TestGolden compares with what the reference made of some texts when testdata was written.
func TestGolden(t *testing.T) {
	for _, name := range files(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := open(t, name)
			for line := range bytes.Lines(unzip(t, "golden-"+name+".jsonl.gz")) {
				var g golden
				if err := json.Unmarshal(line, &g); err != nil {
					t.Fatal(err)
				}
				if differs(t, tok, g.testCase, g.result) {
					got, err := tok.Encode(context.Background(), g.Text, g.Pair, g.Limit)
					t.Errorf("%v:\n got %v %v (%v)\nwant %v %v (%s)", g.testCase, got.IDs, got.Types, err, g.IDs, g.Types, g.Error)
				}
			}
		})
	}
}

// reference starts the reference implementation, or skips the test if there is none.
func reference(t *testing.T, name string, cases []testCase) []result {
	t.Helper()
	python := os.Getenv("OVERLAPD_TEST_PYTHON")
	if python == "" || exec.Command(python, "-c", "import tokenizers").Run() != nil {
		t.Skip("OVERLAPD_TEST_PYTHON names no Python that has the package tokenizers")
	}
	var in bytes.Buffer
	in.Write(unzip(t, name+".json.gz"))
	in.WriteByte('\n')
	encoder := json.NewEncoder(&in)
	for _, c := range cases {
		if err := encoder.Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command(python, "testdata/reference.py")
	command.Stdin, command.Stderr = &in, io.Discard // where the library reports panics
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	var results []result
	lines := bufio.NewReader(bytes.NewReader(out))
	for decoder := json.NewDecoder(lines); ; {
		var r result
		if err := decoder.Decode(&r); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		results = append(results, r)
	}
	if len(results) != len(cases) {
		t.Fatalf("the reference answered %d of %d cases", len(results), len(cases))
	}
	return results
}

// TestReference compares with the reference itself: on made-up texts, some of them long.
func TestReference(t *testing.T) {
	for i, name := range files(t) {
		t.Run(name, func(t *testing.T) {
			tok := open(t, name)
			m := newMaker(*seed + uint64(i))
			if *update {
				writeGolden(t, name, m.cases(200, 20))
				return
			}
			cases := m.cases(*texts, 40)
			for kind := range 5 {
				cases = append(cases, testCase{Text: m.long(kind, 1<<14)}, testCase{Text: m.long(kind, 1<<20)})
			}
			different := 0
			for i, want := range reference(t, name, cases) {
				if c := cases[i]; differs(t, tok, c, want) {
					different++
					if different <= 5 {
						got, err := tok.Encode(context.Background(), c.Text, c.Pair, c.Limit)
						t.Errorf("%v:\n got %s (%v)\nwant %s (%s)", c, show(got.IDs), err, show(want.IDs), want.Error)
					}
				}
			}
			t.Logf("%s: %d differences in %d texts", name, different, len(cases))
		})
	}
}

func writeGolden(t *testing.T, name string, cases []testCase) {
	results := reference(t, name, cases)
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	encoder := json.NewEncoder(z)
	encoder.SetEscapeHTML(false)
	for i, c := range cases {
		r := results[i]
		if c.Pair == nil {
			r.Types = nil
		}
		if err := encoder.Encode(golden{c, r}); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("testdata/golden-"+name+".jsonl.gz", out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// show writes the first of some IDs.
func show(ids []int64) string { return fmt.Sprint(len(ids), ": ", ids[:min(len(ids), 60)]) }
