package hostcheck

import (
	"fmt"
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
const documentation = "../../docs/gpu-errors.md"

// told are the packages all of whose errors the documentation has, and how they
// begin where that is the package's name.
var told = map[string]string{
	"cuda":           "",
	"cuda/mig":       "",
	"cuda/mps":       "mps: ",
	"cuda/driver":    "driver: ",
	"cuda/hostcheck": "",
	"daemon/gpu":     "",
}

// shared are packages that are not of GPUs alone, each with the errors that no GPU
// brings about. A new error must go here or into the documentation.
var shared = map[string]string{
	// What a caller in this process did wrong, or what it gets when it closes.
	"ort":      "ErrEnvOpen ErrLeak ErrClosed errNoValue ErrArenaFull ErrOpLibrary",
	"executor": "ErrClosed ErrOptions ErrUnknownService ErrBadSpan ErrTooManyRounds ErrInUse ErrLeak ErrRemoved ErrProtocol errBacklog",
	// Models, queries and the wire between daemon and worker.
	"segments":        "ErrUnservable ErrUnfinished errCache",
	"segments/gpu":    "errNoTime",
	"segments/worker": "ErrKilled",
	"segments/wire": "ErrUnknownBatch ErrBatchExists ErrSpanOrder ErrInput ErrOutput ErrModel ErrMove " +
		"ErrFrameSize ErrMessage ErrUnexpectedKind ErrBadOutput ErrArenaFull ErrNotAllocated ErrArenaSize",
}

// TestDocumentation: each sentence that a GPU can cause is in the documentation,
// with what to do.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile(documentation)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if !strings.Contains(text, table()) {
		t.Errorf("docs/gpu-errors.md does not hold this table:\n%s", table())
	}
	for dir, prefix := range told {
		for name, sentence := range sentinels(t, dir) {
			checkRow(t, text, dir+" "+name, strings.TrimPrefix(sentence, prefix))
		}
	}
	for dir, others := range shared {
		all := sentinels(t, dir)
		for _, name := range strings.Fields(others) {
			if all[name] == "" {
				t.Errorf("%s has no %s", dir, name)
			}
			delete(all, name)
		}
		for name, sentence := range all {
			checkRow(t, text, dir+" "+name, sentence)
		}
	}
}

// TestRowsAreOfErrors: a sentence that no package has any more is not told.
func TestRowsAreOfErrors(t *testing.T) {
	data, err := os.ReadFile(documentation)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for dir, prefix := range told {
		for _, sentence := range sentinels(t, dir) {
			known[strings.TrimPrefix(sentence, prefix)] = true
		}
	}
	for dir := range shared {
		for _, sentence := range sentinels(t, dir) {
			known[sentence] = true
		}
	}
	_, rest, _ := strings.Cut(string(data), "## Errors by source")
	section, _, _ := strings.Cut(rest, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(section, -1)
	if len(rows) < 40 {
		t.Errorf("only %d rows", len(rows))
	}
	for _, row := range rows {
		if !known[row[1]] {
			t.Errorf("docs/gpu-errors.md tells of `%s`, which no package has", row[1])
		}
	}
}

// TestRulesAreWhole: no rule is told twice, none says nothing, and who is told of a
// fault is told what to do, by its remedy or by the reason that it quotes.
func TestRulesAreWhole(t *testing.T) {
	seen := map[string]bool{}
	word := regexp.MustCompile(`\{[a-z]+\}`)
	for _, r := range rules() {
		if seen[r.name] || r.says == "" {
			t.Errorf("rule %q is there twice, or says nothing", r.name)
		}
		seen[r.name] = true
		if r.level == Fault && r.remedy == "" && !strings.Contains(r.says, "{why}") {
			t.Errorf("rule %s is a fault without a remedy", r.name)
		}
		if strings.ContainsAny(word.ReplaceAllString(r.says+r.remedy, ""), "{}") {
			t.Errorf("rule %s has odd braces: %q", r.name, r.says+r.remedy)
		}
		if strings.HasSuffix(r.says, ".") || strings.HasSuffix(r.remedy, ".") || strings.ContainsAny(r.says+r.remedy, "|\n") && r.name != "mps-stranger" {
			t.Errorf("rule %s is no part of a sentence, or breaks a table: %q", r.name, r.says+"; "+r.remedy)
		}
		if row := "| `" + r.name + "`, "; strings.Contains(table(), row) != (r.level != OK) {
			t.Errorf("the table has rule %s: %t", r.name, r.level == OK)
		}
	}
}

// TestSentinelsAreFound: the test reads errors wherever a package declares them.
func TestSentinelsAreFound(t *testing.T) {
	for dir, want := range map[string]string{
		"cuda": "ErrVersions", "cuda/mig": "ErrWant", "segments/wire": "ErrEngine", "executor": "errBacklog", "cuda/hostcheck": "ErrHost",
	} {
		if sentinels(t, dir)[want] == "" {
			t.Errorf("%s is not found in %s", want, dir)
		}
	}
}

// checkRow wants a row of a table that has the sentence in its first column, and
// something to do in its last.
func checkRow(t *testing.T, text, what, sentence string) {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\|[^|]*`" + regexp.QuoteMeta(sentence) + "`[^|]*\\|.+\\| *([^|]{8,}) \\|$")
	if !row.MatchString(text) {
		t.Errorf("docs/gpu-errors.md has no row of `%s` with what to do (%s)", sentence, what)
	}
}

// sentinels returns the errors that a package declares, by name.
func sentinels(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if vars, ok := d.(*ast.GenDecl); ok && vars.Tok == token.VAR {
				addSentinels(all, vars)
			}
		}
	}
	if len(all) == 0 {
		t.Errorf("%s declares no errors", dir)
	}
	return all
}

// addSentinels adds what errors.New makes of a text.
func addSentinels(all map[string]string, vars *ast.GenDecl) {
	for _, s := range vars.Specs {
		spec, ok := s.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			continue
		}
		call, ok := spec.Values[0].(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			continue
		}
		from, ok := call.Fun.(*ast.SelectorExpr)
		text, literal := call.Args[0].(*ast.BasicLit)
		if ok && literal && from.Sel.Name == "New" {
			all[spec.Names[0].Name], _ = strconv.Unquote(text.Value)
		}
	}
}

// rules returns the rules of all sections.
func rules() (all []rule) {
	for _, s := range sections {
		all = append(all, s.rules...)
	}
	return all
}

// table returns the rules as the documentation has them.
func table() string {
	var b strings.Builder
	b.WriteString("| rule | sentence | what to do |\n|---|---|---|\n")
	for _, r := range rules() {
		if r.level == OK {
			continue
		}
		remedy := r.remedy
		if remedy == "" {
			remedy = "as the sentence says"
			if r.level == Note {
				remedy = "nothing"
			}
		}
		fmt.Fprintf(&b, "| `%s`, %s | %s | %s |\n", r.name, r.level, r.says, remedy)
	}
	return strings.ReplaceAll(b.String(), "{why}", "{reason}")
}
