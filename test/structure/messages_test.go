package structure

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// wordless are failure messages that leave a reader to find out what was wanted, or done.
var wordless = limit{"failure messages without a word", 0, "say what was done, or got and wanted", map[string]int{
	"cuda":                        37,
	"cuda/mig":                    27,
	"cuda/mps":                    22,
	"daemon":                      88,
	"daemon/access":               14,
	"daemon/admin":                7,
	"daemon/config":               29,
	"daemon/config/triton":        9,
	"daemon/gpu":                  11,
	"daemon/http":                 66,
	"daemon/loop":                 16,
	"daemon/observe/timeline":     14,
	"daemon/observe/tracing/otlp": 12,
	"daemon/query":                6,
	"daemon/rpc":                  26,
	"executor":                    75,
	"executor/emulated":           19,
	"internal/textfile":           6,
	"lab/reproduce":               42,
	"lab/sim":                     17,
	"models":                      12,
	"ort":                         6,
	"overlap":                     9,
	"overlap/journal":             12,
	"planning":                    14,
	"planning/selection":          7,
	"predictor":                   12,
	"segments":                    29,
	"segments/wire":               13,
	"segments/worker":             11,
	"test":                        17,
	"test/gpu":                    6,
	"training":                    15,
	"training/advice":             7,
	"training/fit":                9,
	"segments/gpu":                6,
	"internal/cli":                1,
	"segments/probe":              1,
}}

// verb is a verb of a format, with its flags.
var verb = regexp.MustCompile(`%[-+# 0]*(\[\d+\])?[\d.*]*[a-zA-Z%]`)

// TestFailureMessages finds calls such as t.Errorf("%v, %v", got, want).
func TestFailureMessages(t *testing.T) {
	in := wordless.in(t)
	found := map[string][]string{}
	for _, f := range goFiles(t) {
		if !f.isTest() {
			continue
		}
		found[f.dir] = append(found[f.dir], wordlessIn(f)...)
	}
	for dir, at := range found {
		in.hold(dir, len(at), at...)
	}
}

// wordlessIn returns where a test reports a failure with a format that has only verbs and
// punctuation.
func wordlessIn(f *goFile) (at []string) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		x, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Errorf", "Fatalf"}, x.Sel.Name) {
			return true
		}
		said, ok := call.Args[0].(*ast.BasicLit)
		if of, named := x.X.(*ast.Ident); !ok || said.Kind != token.STRING || !named || of.Name == "fmt" {
			return true
		}
		format, err := strconv.Unquote(said.Value)
		if err != nil {
			panic(err) // the parser has accepted it
		}
		if !strings.ContainsFunc(verb.ReplaceAllString(format, ""), isLetter) {
			at = append(at, f.at(call.Pos()))
		}
		return true
	})
	return at
}

func isLetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
