package hostcheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// documentation is where all that a GPU can make go wrong is told.
const documentation = "../../../docs/gpu.md"

// told are the files whose sentinel errors the documentation has in full, and how
// they begin where that is the package's name.
var told = map[string]string{
	"cuda/errors.go":                    "",
	"cuda/versions.go":                  "",
	"cuda/mig/errors.go":                "",
	"cuda/mps/errors.go":                "mps: ",
	"cuda/driver/errors.go":             "driver: ",
	"cmd/overlapd/gpucheck/errors.go":   "",
	"cmd/overlapd/hostcheck/finding.go": "",
	"daemon/gpu/errors.go":              "",
}

// someTold are those of packages that are not of GPUs alone.
var someTold = map[string][]string{
	"ort/error.go":       {"ErrNotFound", "ErrNotRuntime", "ErrTooOld", "ErrNoProvider", "ErrProvider"},
	"executor/errors.go": {"ErrHeld", "ErrReplaced", "ErrNoRoom", "ErrRestartLimit"},
	"segments/errors.go": {"ErrDeviceFull", "ErrDeviceMemory", "ErrDeviceLost"},
}

// TestDocumentation: each sentence that a GPU can cause is in the documentation,
// with what to do.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile(documentation)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if !strings.Contains(text, Table()) {
		t.Errorf("docs/gpu.md does not hold this table:\n%s", Table())
	}
	for file, prefix := range told {
		for name, sentence := range sentinels(t, file) {
			checkRow(t, text, file+" "+name, strings.TrimPrefix(sentence, prefix))
		}
	}
	for file, names := range someTold {
		all := sentinels(t, file)
		for _, name := range names {
			if all[name] == "" {
				t.Errorf("%s has no %s", file, name)
			}
			checkRow(t, text, file+" "+name, all[name])
		}
	}
}

// checkRow wants a row of a table that has the sentence in its first column, and
// something to do in its last.
func checkRow(t *testing.T, text, what, sentence string) {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\|[^|]*`" + regexp.QuoteMeta(sentence) + "`[^|]*\\|.+\\| *([^|]{8,}) \\|$")
	if !row.MatchString(text) {
		t.Errorf("docs/gpu.md has no row of `%s` with what to do (%s)", sentence, what)
	}
}

// sentinels returns the errors that a file declares, by name.
func sentinels(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../../..", file), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		call, ok := spec.Values[0].(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return true
		}
		if text, ok := call.Args[0].(*ast.BasicLit); ok {
			all[spec.Names[0].Name], _ = strconv.Unquote(text.Value)
		}
		return true
	})
	if len(all) == 0 {
		t.Errorf("%s declares no errors", file)
	}
	return all
}
