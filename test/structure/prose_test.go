package structure

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dialect are phrases that a reader would have to learn before the subject, each with what
// to write instead.
var dialect = []struct{ phrase, instead string }{
	{`anew`, "again, or from scratch"},
	{`lately`, "recently"},
	{`for want of`, "for lack of"},
	{`the business of`, "belongs to package X"},
	{`mend(s|ed|ing)?`, "fix"},
	{`turn(s|ed)? down`, "reject"},
	{`puts? off`, "defer"},
	{`(take|takes|taken|took) back`, "dissolve, or undo"},
	{`no good`, "invalid"},
	{`solo times?`, "isolated latency"},
	{`of 99 of 100`, "p99"},
	{`bears? [^.]{0,30}\bload`, "sustains"},
	{`merges queries`, "batches"},
	{`(is|are) told by`, "is identified by, or receives"},
	{`what waits`, "the queued queries"},
	{`whoever`, "name the reader, caller or client"},
	{`that which`, "two sentences"},
	{`in the middle of (its|their) runs`, "at its median latency"},
}

// glossary explains words that are written nowhere else.
const glossary = "docs/words.md"

// plainGo are the packages whose comments and strings are held to that. The others follow as
// they are rewritten.
var plainGo = []string{
	"models",
	"models/zoo",
	"internal/textfile",
	"internal/stats",
	"internal/report",
	"internal/perfetto",
	"predictor",
	"executor/emulated/device",
	"lab/synthetic",
	"training",
	"training/advice",
	"training/fit",
	"daemon/query",
	"daemon/http",
	"daemon/rpc",
	"daemon/access",
	"daemon/admin",
	"daemon/gpu",
	"daemon/learning",
	"daemon/observe",
	"daemon/observe/metrics",
	"daemon/observe/timeline",
	"daemon/observe/tracing",
	"daemon/observe/tracing/otlp",
	"daemon/status",
	"daemon/statefile",
	"daemon/config/triton",
	"executor",
	"executor/child",
	"executor/emulated",
	"lab/sim",
	"lab/sim/bound",
	"segments",
	"segments/gpu",
	"segments/wire",
	"segments/worker",
	"cuda",
	"cuda/driver",
	"cuda/hostcheck",
	"cuda/mps",
	"cuda/mig",
	"ort",
	"lab/reproduce",
	"planning",
	"planning/selection",
	"cmd/overlapd",
	"cmd/overlapd/data",
	"cmd/overlapd/demo",
	"cmd/overlapd/planning",
	"cmd/overlapd/serving",
	"cmd/overlapd/watching",
	"test/structure",
}

// printed are strings that commands print. A page of docs/benchmarks holds some of them: the page and
// the string must be changed together, which takes a run of the command. Users know the last one.
var printed = []string{
	`"given solo times"`,
	`"Device of the %s: %d groups of one span and %d of several, %d solo times."`,
	`"LATELY      "`,
}

var dialectWords = func() (list []*regexp.Regexp) {
	for _, d := range dialect {
		list = append(list, regexp.MustCompile(`(?is)\b`+d.phrase+`\b`))
	}
	return list
}()

// TestPlainEnglish keeps phrases from coming back that nobody says to a colleague.
func TestPlainEnglish(t *testing.T) {
	inRoot()
	pages := []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/benchmarks/*.md", "docs/decisions/*.md"} {
		more, _ := filepath.Glob(pattern)
		pages = append(pages, more...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if page != glossary {
			checkPhrases(t, page, prose(string(text)))
		}
	}
	for _, f := range goFiles(t) {
		for _, dir := range plainGo {
			if f.dir != dir || f.isTest() && dir != "test/structure" || strings.HasSuffix(f.path, "prose_test.go") {
				continue
			}
			for _, group := range f.syntax.Comments {
				checkPhrases(t, f.path, group.Text())
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && !slices.Contains(printed, lit.Value) {
					checkPhrases(t, f.path, lit.Value)
				}
				return true
			})
		}
	}
}

func checkPhrases(t *testing.T, place, text string) {
	t.Helper()
	for i, word := range dialectWords {
		if found := word.FindString(text); found != "" {
			t.Errorf("%s: %q: write %s", place, found, dialect[i].instead)
		}
	}
}

var (
	fenced    = regexp.MustCompile("(?s)```.*?```")
	generated = regexp.MustCompile(`(?s)<!-- numbers:.*?<!-- /numbers -->`)
	imports   = regexp.MustCompile(`(?s)<!-- imports -->.*?<!-- /imports -->`)
)

// prose returns a page without what is printed by commands, and without code.
func prose(page string) string {
	for _, cut := range []*regexp.Regexp{generated, imports, fenced} {
		page = cut.ReplaceAllString(page, "")
	}
	return page
}

// mostWords is how many words a sentence of the README may have.
const mostWords = 45

// TestShortSentences holds the README to sentences that are understood when first read.
func TestShortSentences(t *testing.T) {
	inRoot()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, paragraph := range regexp.MustCompile(`\n\n|\n- |\n\|`).Split(prose(string(text)), -1) {
		for _, sentence := range regexp.MustCompile(`[.:;?!]\s`).Split(paragraph, -1) {
			if n := len(strings.Fields(sentence)); n > mostWords {
				t.Errorf("%d words, at most %d: %s", n, mostWords, sentence)
			}
		}
	}
}
