package metrics

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the list of metrics into the documentation")

// The list of docs/metrics.md stands between these lines.
const (
	docs      = "../../../docs/metrics.md"
	listStart = "<!-- metrics -->\n"
	listEnd   = "<!-- /metrics -->\n"
)

// list returns the families as docs/metrics.md has them.
func list() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for i := range families {
		f := &families[i]
		labels := "–"
		if len(f.labels) > 0 {
			labels = "`" + strings.Join(f.labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.name, kinds[f.kind], labels, strings.ReplaceAll(f.help, "|", `\|`))
	}
	return b.String()
}

// TestDocs holds the list that people read to the metrics that there are; with
// -update it writes it.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(b), listStart)
	have, after, ended := strings.Cut(rest, listEnd)
	if !found || !ended {
		t.Fatalf("%s has no place for the list, between %q and %q", docs, listStart, listEnd)
	}
	if *update {
		if err := os.WriteFile(docs, []byte(before+listStart+list()+listEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have != list() {
		t.Errorf("%s does not hold the list of metrics: go test ./daemon/observe/metrics -run TestDocs -update", docs)
	}
}
