package structure

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// below reports whether path is prefix or lies below it.
func below(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// TestArrows holds the packages to the tables. It reads the imports itself, of
// every build tag, instead of asking the go command, whose answer a cached
// test would not notice to have changed.
func TestArrows(t *testing.T) {
	for _, f := range goFiles(t) {
		for _, path := range f.imports() {
			if fault := checkImport(f.dir, path, f.isTest()); fault != "" {
				t.Errorf("%s imports %s: %s", f.path, path, fault)
			}
		}
	}
}

// checkImport returns what is wrong with an import, or "".
func checkImport(dir, path string, test bool) string {
	if ours, ok := strings.CutPrefix(path, module+"/"); ok {
		return checkArrow(dir, ours, test)
	}
	for _, o := range owners {
		switch {
		case !below(path, o.prefix), owns(dir, o.prefix):
		case test && (slices.Contains(testsOwn, o.prefix) || slices.Contains(testsToo, o.prefix)):
		default:
			return fmt.Sprintf("not in %s: %s", dir, o.why)
		}
		if below(path, o.prefix) {
			return ""
		}
	}
	first, _, _ := strings.Cut(path, "/")
	switch {
	case strings.Contains(first, "."):
		return "no package owns it yet: add it to owners in arrows_table_test.go, with the reason, and to the table of ARCHITECTURE.md"
	case dir == "overlap" && !test && !slices.Contains(pure, path):
		return "the scheduler is a pure state machine: no goroutine, clock, log, file or cgo"
	}
	return ""
}

func checkArrow(dir, ours string, test bool) string {
	if below(ours, "lab") && !test && !below(dir, "lab") && dir != "cmd/overlapd-lab" && dir != "cmd/overlapd/demo" {
		return fmt.Sprintf("in %s: what serves does not depend on the lab", dir)
	}
	for _, a := range arrows() {
		if a.pkg != dir {
			continue
		}
		// Tests in a package of their own import what they test.
		if slices.Contains(a.may, ours) || test && (ours == dir || slices.Contains(a.tests, ours)) {
			return ""
		}
		return fmt.Sprintf("not in %s: %s", dir, a.why)
	}
	return fmt.Sprintf("%s is not in the table of ARCHITECTURE.md", dir)
}

func owns(dir, prefix string) bool {
	return slices.ContainsFunc(arrows(), func(a arrow) bool { return a.pkg == dir && slices.Contains(a.owns, prefix) })
}

// TestCheckImport sees the check refuse what it should.
func TestCheckImport(t *testing.T) {
	for _, c := range []struct {
		dir, path string
		test      bool
		want      string
	}{
		{"overlap", module + "/models", false, ""},
		{"overlap", module + "/daemon", false, "a pure value"},
		{"overlap", module + "/daemon", true, "a pure value"},
		{"overlap", "time", false, ""},
		{"overlap", "sync", false, "pure state machine"},
		{"overlap", "os", true, ""},
		{"overlap", "pgregory.net/rapid", true, ""},
		{"overlap", "pgregory.net/rapid", false, "made for tests"},
		{"models", module + "/models", true, ""},
		{"models", module + "/models/zoo", false, "vocabulary"},
		{"models", "google.golang.org/protobuf/encoding/protowire", false, ""},
		{"predictor", "google.golang.org/protobuf/encoding/protowire", false, "wire format"},
		{"segments", "C", false, "cgo"},
		{"segments", "C", true, "cgo"},
		{"daemon", "github.com/rs/zerolog/log", false, ""},
		{"executor", "github.com/rs/zerolog", false, "only the daemon logs"},
		{"executor", "log/slog", false, "zerolog"},
		{"executor", "logical", false, ""},
		{"daemon", module + "/ort", false, "stays out of this process"},
		{"daemon", module + "/ort", true, ""},
		{"daemon", "example.com/new", false, "no package owns it"},
		{"daemon", module + "/cmd/overlapd/load", false, "not in daemon"},
		{"elsewhere", module + "/models", false, "not in the table"},
		{"daemon", module + "/lab/baselines", false, "does not depend on the lab"},
		{"lab/sim", module + "/lab/baselines", false, "in virtual time"},
		{"lab/sim", module + "/lab/baselines", true, ""},
		{"cmd/overlapd/demo", module + "/lab/sim", false, ""},
		{"cmd/overlapd", module + "/lab/sim", false, "does not depend on the lab"},
	} {
		got := checkImport(c.dir, c.path, c.test)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s imports %s (test: %t): got %q, want %q", c.dir, c.path, c.test, got, c.want)
		}
	}
}

// importsOf returns the packages of ours that each package imports, tests apart.
func importsOf(files []*goFile) map[string][]string {
	graph := map[string][]string{}
	for _, f := range files {
		if f.isTest() {
			continue
		}
		for _, path := range f.imports() {
			if ours, ok := strings.CutPrefix(path, module+"/"); ok && !slices.Contains(graph[f.dir], ours) {
				graph[f.dir] = append(graph[f.dir], ours)
			}
		}
	}
	return graph
}

// wayTo returns the packages over which one reaches another, both included, nil
// if it does not.
func wayTo(graph map[string][]string, from, to string) []string {
	before := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		if queue[0] == to {
			way := []string{to}
			for at := before[to]; at != ""; at = before[at] {
				way = append([]string{at}, way...)
			}
			return way
		}
		for _, next := range graph[queue[0]] {
			if _, seen := before[next]; !seen {
				before[next] = queue[0]
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// TestReach holds what a process links to the table, over all imports.
func TestReach(t *testing.T) {
	graph := importsOf(goFiles(t))
	if wayTo(graph, "cmd/overlapd", "segments/wire") == nil || len(wayTo(graph, "daemon", "internal/stats")) < 3 {
		t.Error("ways that are there are not found")
	}
	for _, u := range unreachable {
		if way := wayTo(graph, u.from, u.to); way != nil {
			t.Errorf("%s reaches %s over %s: %s", u.from, u.to, strings.Join(way, ", "), u.why)
		}
	}
}

// TestArrowsKnowEveryPackage fails when a package is missing in the table, or
// one in the table is gone.
func TestArrowsKnowEveryPackage(t *testing.T) {
	have := folders(goFiles(t))
	for _, dir := range have {
		if !slices.ContainsFunc(arrows(), func(a arrow) bool { return a.pkg == dir }) {
			t.Errorf("%s is not in the table of ARCHITECTURE.md: say what it may import, and why no more", dir)
		}
	}
	for _, a := range arrows() {
		for _, dir := range append([]string{a.pkg}, append(a.may, a.tests...)...) {
			if !slices.Contains(have, dir) {
				t.Errorf("the table speaks of %s, where no Go file is", dir)
			}
		}
		for _, prefix := range a.owns {
			if !slices.ContainsFunc(owners, func(o owner) bool { return o.prefix == prefix }) {
				t.Errorf("%s owns %s, and nothing says why no other does", a.pkg, prefix)
			}
		}
	}
}

// TestSchedulerIsPure looks for what imports do not show.
func TestSchedulerIsPure(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.dir != "overlap" || f.isTest() {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: the scheduler starts no goroutine", f.at(n.Pos()))
			case *ast.ChanType:
				t.Errorf("%s: the scheduler has no channel", f.at(n.Pos()))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && slices.Contains(impure, x.Name+"."+n.Sel.Name) {
					t.Errorf("%s: %s.%s: time comes as an argument, and outcomes are return values", f.at(n.Pos()), x.Name, n.Sel.Name)
				}
			}
			return true
		})
	}
}
