package structure

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// testName matches what a page names as a test.
var testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")

// TestSecurityPageNamesTests holds docs/security.md to the tests that there are: every class
// of faults names at least one, and none that is gone. Nor does CONTRIBUTING.md name such a test.
func TestSecurityPageNamesTests(t *testing.T) {
	page := string(readFile(t, "docs/security.md"))
	tests := map[string]bool{}
	for _, f := range goFiles(t) {
		if f.isTest() {
			for _, d := range f.syntax.Decls {
				if d, ok := d.(*ast.FuncDecl); ok && d.Recv == nil {
					tests[d.Name.Name] = true
				}
			}
		}
	}
	for _, path := range []string{"docs/security.md", "CONTRIBUTING.md"} {
		for _, m := range testName.FindAllSubmatch(readFile(t, path), -1) {
			if !tests[string(m[1])] {
				t.Errorf("%s names %s, which is no test", path, m[1])
			}
		}
	}
	_, faults, _ := strings.Cut(page, "## Faults of other servers\n")
	faults, _, _ = strings.Cut(faults, "\n## ")
	rows := 0
	for line := range strings.Lines(faults) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| class |") {
			continue
		}
		rows++
		if !testName.MatchString(line) {
			t.Errorf("no test shows this: %s", line)
		}
	}
	if rows < 20 {
		t.Errorf("only %d classes of faults were found", rows)
	}
}
