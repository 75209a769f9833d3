package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

const (
	linearHeader = "gpu,model,alpha_ms,beta_ms,slo_ms,exit_points\n"
	linearRows   = linearHeader + "A,net,0.054,10.546,21,40\nA,one,0.000001,0.0007,5.5,700\nB,net,40.313,28.208,378,171\nB,large,7.353,0.222,59,1\n"
)

// readLinear reads a file of this text.
func readLinear(text, device string) (*Profile, error) {
	var r linearReader
	return r.profile(linearSheet.Read(strings.NewReader(text), "l.csv", r.head, r.row), "l.csv", device)
}

func linearDevice(t testing.TB, text, device string) *Model {
	t.Helper()
	p, err := readLinear(text, device)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewModel(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestLinearIsExact at every batch size, for whole models and for spans wherever they
// are cut, as is the table of isolated latencies that it fills for two batch sizes.
func TestLinearIsExact(t *testing.T) {
	for device, rates := range map[string][][2]int{"A": {{54_000, 10_546_000}, {1, 700}}, "B": {{40_313_000, 28_208_000}, {7_353_000, 222_000}}} {
		m := linearDevice(t, linearRows, device)
		for i, rate := range rates {
			operators := m.Models()[i].Operators
			solo, err := predictor.NewSolo(slices.Repeat([]int{operators}, len(rates))...)
			if err != nil {
				t.Fatal(err)
			}
			for _, size := range []int{1, LinearMaxSize} {
				if err := solo.SetOperators(models.ServiceID(i), size, 0, m.OperatorTimes(models.Span{Service: models.ServiceID(i), End: operators, Size: size})); err != nil {
					t.Fatal(err)
				}
			}
			for size := 1; size <= LinearMaxSize; size++ {
				cut := 1 + size%operators
				var sum time.Duration
				for _, s := range []models.Span{{Start: 0, End: cut}, {Start: cut, End: operators}} {
					s.Service, s.Size = models.ServiceID(i), size
					if s.Start == s.End {
						continue
					}
					took := m.Latency(models.Group{Spans: []models.Span{s}})
					if known, _ := solo.Span(s); known != took {
						t.Fatalf("%+v takes %v, in the table %v", s, took, known)
					}
					// Rounding moves a cut by half a nanosecond for each query, and for the batch.
					even := float64(rate[0]*size+rate[1]) * float64(s.Len()) / float64(operators)
					if off := float64(took) - even; off < -float64(size)-1 || off > float64(size)+1 {
						t.Fatalf("%+v takes %v, evenly divided %v ns", s, took, even)
					}
					sum += took
				}
				if want := time.Duration(rate[0]*size + rate[1]); sum != want {
					t.Fatalf("model %d of %s takes %v for %d queries, want %v", i, device, sum, size, want)
				}
			}
		}
	}
}

// TestLinearFile keeps what was read, with targets and operators.
func TestLinearFile(t *testing.T) {
	p, err := readLinear(linearRows, "A")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a.device.json")
	if err := p.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	read, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, read); diff != "" {
		t.Error(diff)
	}
	want := []ModelInfo{
		{Name: "net", Operators: 40, Sizes: []int{1, LinearMaxSize}, SeqLens: []int{0}, TargetMillis: 21},
		{Name: "one", Operators: 700, Sizes: []int{1, LinearMaxSize}, SeqLens: []int{0}, TargetMillis: 5.5},
	}
	if diff := cmp.Diff(want, read.Models()); diff != "" || read.Device != "A" || read.Rows != 2 {
		t.Errorf("device %q of %d rows: %s", read.Device, read.Rows, diff)
	}
	p, err = readLinear("model,alpha_ms,beta_ms\nnet,1,0\n", "V100")
	if err != nil || p.Device != "V100" || p.Models()[0].Operators != linearOperators || p.Models()[0].TargetMillis != 0 {
		t.Errorf("without further columns: %+v, %v", p, err)
	}
}

func TestLinearRefuses(t *testing.T) {
	row := func(fields string) string { return linearHeader + "A,net,1,1,1,1\n" + fields + "\n" }
	for name, c := range map[string]struct{ text, device, says string }{
		"empty":           {"", "", "l.csv: unusable linear models: the file is empty; it must have the columns model, alpha_ms and beta_ms, and optionally gpu, slo_ms and exit_points; below, a row for each model"},
		"no rows":         {linearHeader, "", "l.csv: unusable linear models: there are columns, but no row"},
		"no model":        {"alpha_ms,beta_ms\n1,1\n", "", "l.csv:1: unusable linear models: no column model among"},
		"no alpha":        {"model,beta_ms\nnet,1\n", "", "l.csv:1: unusable linear models: no column alpha_ms among"},
		"no beta":         {"model,alpha_ms\nnet,1\n", "", "l.csv:1: unusable linear models: no column beta_ms among"},
		"column twice":    {"model,alpha_ms,beta_ms,beta_ms\nnet,1,1,1\n", "", "l.csv:1: unusable linear models: columns 3 and 4 are both beta_ms"},
		"short row":       {row("A,x,1"), "", "l.csv:3: unusable linear models: 3 fields"},
		"NaN":             {row("A,x,NaN,1,1,1"), "", `l.csv:3: unusable linear models: column 3 (alpha_ms) is "NaN": it must be a number`},
		"negative":        {row("A,x,1,-1,1,1"), "", `l.csv:3: unusable linear models: column 4 (beta_ms) is "-1"`},
		"infinite":        {row("A,x,1,Inf,1,1"), "", `column 4 (beta_ms) is "Inf"`},
		"an hour":         {row("A,x,879,1,1,1"), "", `column 3 (alpha_ms) is "879"`},
		"no time":         {row("A,x,0,0,1,1"), "", "l.csv:3: unusable linear models: column 4 (beta_ms) is \"0\": each of 1 operators"},
		"tiny operators":  {row("A,x,0.000005,0.000009,1,10"), "", "each of 10 operators must take at least a nanosecond"},
		"target":          {row("A,x,1,1,0,1"), "", `l.csv:3: unusable linear models: column 5 (slo_ms) is "0"`},
		"operators":       {row("A,x,1,1,1,1.5"), "", `column 6 (exit_points) is "1.5": it must be a whole number`},
		"no operators":    {row("A,x,1,1,1,0"), "", `column 6 (exit_points) is "0"`},
		"unnamed":         {row("A,,1,1,1,1"), "", `l.csv:3: unusable linear models: column 2 (model) is "": every model must have a name`},
		"of no GPU":       {row(",x,1,1,1,1"), "", `l.csv:3: unusable linear models: column 1 (gpu) is "": every model`},
		"twice":           {row("A,net,2,1,1,1"), "", `l.csv:3: unusable linear models: column 2 (model) is "net": the model is duplicate; remove one`},
		"none chosen":     {linearRows, "", "l.csv: unusable linear models: they were measured on A, B; name one with --device"},
		"unknown chosen":  {linearRows, "C", `l.csv: unusable linear models: none was measured on "C"; name one of A, B`},
		"too many models": {"model,alpha_ms,beta_ms\n" + manyModels(), "", "257 models; the limit is 256"},
	} {
		if _, err := readLinear(c.text, c.device); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s", name, err, c.says)
		}
	}
	if _, err := ReadLinear(filepath.Join(t.TempDir(), "absent.csv"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func manyModels() string {
	var b strings.Builder
	for i := range predictor.MaxFeatureModels + 1 {
		fmt.Fprintf(&b, "m%d,1,1\n", i)
	}
	return b.String()
}

// FuzzReadLinear: whatever is accepted is a device that can be written and read, and
// that takes longer for larger batches.
func FuzzReadLinear(f *testing.F) {
	f.Add(linearRows, "A")
	f.Add("model,alpha_ms,beta_ms\nnet,1,0\n", "")
	f.Add("model,alpha_ms,beta_ms\nnet,1,0\n", strings.Repeat("\xff", maxText)) // grows where it is written
	f.Fuzz(func(t *testing.T, text, device string) {
		p, err := readLinear(text, device)
		if err != nil {
			return
		}
		if _, err := Read(strings.NewReader(string(encode(t, p)))); err != nil {
			t.Fatal(err)
		}
		m, err := NewModel(p)
		if err != nil {
			t.Fatal(err)
		}
		for i, info := range m.Models() {
			one := models.Group{Spans: []models.Span{{Service: models.ServiceID(i), End: info.Operators, Size: 1}}}
			many := models.Group{Spans: []models.Span{{Service: models.ServiceID(i), End: info.Operators, Size: LinearMaxSize}}}
			if a, b := m.Latency(one), m.Latency(many); a <= 0 || a > b || b > predictor.MaxTime {
				t.Fatalf("%s takes %v for one query, %v for %d", info.Name, a, b, LinearMaxSize)
			}
		}
	})
}
