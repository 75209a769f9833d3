package training

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/overlapd/overlapd/models"
)

const pairHeader = "model,start,end,bs,seq_len,model,start,end,bs,seq_len,median,mean,std\n"

func readCSV(r io.Reader, name string) (*Dataset, error) {
	c := csvReader{byName: map[string]int{}}
	if err := groupSheet.Read(r, name, c.readHeader, c.readRow); err != nil {
		return nil, err
	}
	return Merge(&c.data)
}

func mustRead(t *testing.T, text string) *Dataset {
	t.Helper()
	d, err := readCSV(strings.NewReader(text), "test.csv")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func span(model, start, end, size, seqLen int) models.Span {
	return models.Span{Service: models.ServiceID(model), Start: start, End: end, Size: size, SeqLen: seqLen}
}

func group(spans ...models.Span) models.Group { return models.Group{Spans: spans} }

func TestWriteCSV(t *testing.T) {
	d := &Dataset{
		Models: []Model{{Name: "a", Operators: 9}, {Name: "b", Operators: 5}},
		Rows: []Row{
			{Group: group(span(1, 0, 5, 1, 0)), Median: 1.5, Mean: 2, Std: 0},
			{Group: group(span(0, 2, 9, 4, 16), span(1, 0, 3, 1, 0)), Repeats: 9, Median: 1e-3, Mean: 1e9, Std: 0.1},
		},
	}
	var b strings.Builder
	if err := WriteCSV(&b, d); err != nil {
		t.Fatal(err)
	}
	want := pairHeader + "b,0,5,1,0,,,,,,1.5,2,0\na,2,9,4,16,b,0,3,1,0,0.001,1e+09,0.1\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(d, mustRead(t, b.String()), cmpopts.IgnoreFields(Row{}, "Repeats")); diff != "" {
		t.Errorf("read again:\n%s", diff)
	}
	if err := WriteCSV(failing{}, d); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a failing writer: %v", err)
	}
	d.Rows[0].Median = math.NaN()
	if err := WriteCSV(io.Discard, d); !errors.Is(err, ErrFormat) {
		t.Errorf("a dataset with NaN was written: %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestReadCSVFaults(t *testing.T) {
	row := func(fields string) string { return pairHeader + "a,0,5,1,0,b,0,5,1,0,10,10,1\n" + fields + "\n" }
	for name, test := range map[string]struct{ text, want string }{
		"empty":           {"", "f.csv: unusable measurements: the file is empty; it must have the columns model,start"},
		"only a header":   {pairHeader, "no row below"},
		"no header":       {"a,0,5,1,0,10,10,1\n", "f.csv:1: unusable measurements: column 1 is \"a\" and must be model; it must have the columns model,start"},
		"missing in slot": {"model,start,bs,seq_len,median,mean,std\n", `f.csv:1: unusable measurements: column 3 is "bs" and must be end`},
		"missing at end":  {"model,start,end,bs,seq_len,median,mean\n", "f.csv:1: unusable measurements: column 8, std, is missing"},
		"further column":  {"model,start,end,bs,seq_len,median,mean,std,color\n", `f.csv:1: unusable measurements: column 9, "color"`},
		"too many slots":  {strings.Repeat("model,start,end,bs,seq_len,", MaxSpans+1) + "median,mean,std\n", "17 models to a row, the limit is 16"},
		"ragged":          {row("a,0,5,1,0,10,10,1"), "f.csv:3: unusable measurements: 8 fields, the first line names 13 columns"},
		"quote":           {row(`"a,0,5`), "f.csv:3: unusable measurements: "},
		"no number":       {row("a,0,5,1,0,b,x,5,1,0,10,10,1"), `f.csv:3: unusable measurements: column 7 (start) is "x": it must be a whole number`},
		"negative start":  {row("a,-1,5,1,0,b,0,5,1,0,10,10,1"), `unusable measurements: column 2 (start) is "-1": it must be a whole number from 0 to`},
		"backwards":       {row("a,0,5,1,0,b,5,4,1,0,10,10,1"), `column 8 (end) is "4": the span [5, 4) ends before`},
		"no size":         {row("a,0,5,0,0,b,0,5,1,0,10,10,1"), `column 4 (bs) is "0": it must be a whole number from 1`},
		"large size":      {row("a,0,5,1048577,0,b,0,5,1,0,10,10,1"), `column 4 (bs) is "1048577": `},
		"nothing to run":  {row("a,5,5,1,0,,,,,,10,10,1"), "f.csv:3: unusable measurements: no slot has operators"},
		"half a slot":     {row("a,0,5,1,0,,0,5,1,0,10,10,1"), `column 8 (end) is "5": it stands in a slot without a model`},
		"same twice":      {row("a,0,5,1,0,a,0,5,1,0,10,10,1"), `column 6 (model) is "a": it stands twice`},
		"NaN":             {row("a,0,5,1,0,b,0,5,1,0,NaN,10,1"), `column 11 (median) is "NaN": it must be a number`},
		"infinite":        {row("a,0,5,1,0,b,0,5,1,0,10,Inf,1"), `column 12 (mean) is "Inf": `},
		"negative":        {row("a,0,5,1,0,b,0,5,1,0,-10,10,1"), `column 11 (median) is "-10": `},
		"zero":            {row("a,0,5,1,0,b,0,5,1,0,0,10,1"), `column 11 (median) is "0": `},
		"negative std":    {row("a,0,5,1,0,b,0,5,1,0,10,10,-1"), `column 13 (std) is "-1": `},
		"eleven days":     {row("a,0,5,1,0,b,0,5,1,0,1e13,10,1"), `column 11 (median) is "1e13": `},
		"name":            {row("a\x01,0,5,1,0,b,0,5,1,0,10,10,1"), `column 1 (model) is "a\x01": the model's name`},
		"long name":       {row(strings.Repeat("n", 300) + ",0,5,1,0,b,0,5,1,0,10,10,1"), "a model's name of 300 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readCSV(strings.NewReader(test.text), "f.csv")
			if err == nil || !strings.HasPrefix(err.Error(), "f.csv:") || !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestReadCSVTooManyModels(t *testing.T) {
	var b strings.Builder
	b.WriteString("model,start,end,bs,seq_len,median,mean,std\n")
	for i := range MaxModels + 1 {
		fmt.Fprintf(&b, "m%d,0,1,1,0,1,1,1\n", i)
	}
	if _, err := readCSV(strings.NewReader(b.String()), "f.csv"); err == nil || !strings.Contains(err.Error(), "f.csv:258: unusable measurements: column 1 (model)") {
		t.Errorf("got %v", err)
	}
}

// A file that does not end must be given up, also inside of one line.
func TestReadCSVTooManyBytes(t *testing.T) {
	for name, filler := range map[string]byte{"lines": '\n', "one line": 'x'} {
		_, err := readCSV(io.MultiReader(strings.NewReader(pairHeader), endless{filler}), "f.csv")
		if !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "f.csv:2: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type endless struct{ filler byte }

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.filler
	}
	return len(p), nil
}

// FuzzReadCSV reads anything; what is taken must be sound, and the same after
// it was written and read again.
func FuzzReadCSV(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("testdata", "three.csv"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(pairHeader + "a,0,5,1,0,b,5,5,1,0,10,10,1\n"))
	f.Add([]byte("model,start,end,bs,seq_len,median,mean,var\n\"a\nb\",0,5,1,0,1e3,10,0"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := readCSV(bytes.NewReader(text), "fuzz.csv")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fuzz.csv:") {
				t.Fatalf("%T %v does not say where", err, err)
			}
			return
		}
		if err := d.Check(); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := WriteCSV(&b, d); err != nil {
			t.Fatal(err)
		}
		again, err := readCSV(&b, "again.csv")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, again); diff != "" {
			t.Fatalf("it changed:\n%s", diff)
		}
	})
}
