package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// TestLead says how many models one child is through with, and what of those
// counts.
func TestLead(t *testing.T) {
	for name, test := range map[string]struct {
		models  string // separated by commas
		done    int
		equal   int
		failed  string // the model whose failure is counted
		skipped string
		err     string // "" if the run may go on
	}{
		"all":                  {"a,b,c", 3, 3, "", "", ""},
		"crash at the first":   {"crashes,b", 1, 0, "crashes", "", ""},
		"crash in the middle":  {"a,crashes,c", 2, 1, "crashes", "", ""},
		"crash at the last":    {"a,crashes", 2, 1, "crashes", "", ""},
		"crash of the runtime": {"a,crashes ONNX Runtime,c", 2, 1, "", "crashes ONNX Runtime", ""},
		"hang":                 {"a,hangs,c", 2, 1, "hangs", "", ""},
		"difference":           {"differs,b", 2, 1, "differs", "", ""},
		"broken child":         {"a,cannot load,c", 1, 1, "", "", "no library"},
		"early end":            {"a,leaves,c", 1, 1, "", "", "ended early"},
		"another language":     {"a,babbles,c", 1, 1, "", "", "ended early"},
		"failure at the end":   {"a,ends badly", 2, 2, "", "", "after its last model"},
	} {
		var list []model
		for name := range strings.SplitSeq(test.models, ",") {
			list = append(list, model{Name: name})
		}
		p := parent{options: Options{Child: child(t, "fake"), Timeout: 2 * time.Second}, report: &Report{}}
		done, err := p.lead(context.Background(), list)
		if done != test.done || p.done != done || p.report.Equal != test.equal {
			t.Errorf("%s: %d done, %d counted, %d equal", name, done, p.done, p.report.Equal)
		}
		if got := strings.Join(modelNames(p.report.Failures), ","); got != test.failed {
			t.Errorf("%s: failed %q", name, got)
		}
		if got := strings.Join(modelNames(p.report.Skips), ","); got != test.skipped {
			t.Errorf("%s: skipped %q", name, got)
		}
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, expected %q", name, err, test.err)
		}
	}
}

func TestLeadNeedsAChild(t *testing.T) {
	p := parent{options: Options{Child: []string{t.TempDir() + "/none"}, Timeout: time.Minute}, report: &Report{}}
	if done, err := p.lead(context.Background(), []model{{Name: "a"}}); err == nil || done != 0 {
		t.Errorf("%d models are done by no child: %v", done, err)
	}
}

// TestTasks reads back what a child is told.
func TestTasks(t *testing.T) {
	want := []model{{Name: "a\n\"b", Path: "/p", Sets: []string{"s"}}, {Name: "c", Output: "o"}}
	in, err := tasks("/cache", want)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(in)
	var first task
	if err := decoder.Decode(&first); err != nil || first.Cache != "/cache" {
		t.Errorf("%+v: %v", first, err)
	}
	for _, w := range want {
		var m model
		if err := decoder.Decode(&m); err != nil || m.Name != w.Name || m.Path != w.Path || len(m.Sets) != len(w.Sets) || m.Output != w.Output {
			t.Errorf("%+v: %v, expected %+v", m, err, w)
		}
	}
	if err := decoder.Decode(&first); !errors.Is(err, io.EOF) {
		t.Errorf("behind the last model: %v", err)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var words tail
	for _, s := range []string{"first", strings.Repeat("x", 3*maxReason), strings.Repeat("y", 100), " last\n"} {
		if n, err := words.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("%d of %d bytes: %v", n, len(s), err)
		}
		if len(words.b) > maxReason {
			t.Errorf("%d bytes are kept", len(words.b))
		}
	}
	want := strings.Repeat("x", maxReason-106) + strings.Repeat("y", 100) + " last"
	if words.String() != want {
		t.Errorf("%q", words.String())
	}
}
