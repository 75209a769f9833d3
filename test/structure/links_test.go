package structure

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code    = regexp.MustCompile("`[^`\n]*`")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	target  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// TestLinks follows every link within the documents: the file is there, and so is the heading.
func TestLinks(t *testing.T) {
	inRoot()
	pages := []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	for _, pattern := range []string{"docs/*.md", "docs/benchmarks/*.md", "docs/decisions/*.md", "deploy/python/*.md"} {
		more, _ := filepath.Glob(pattern)
		pages = append(pages, more...)
	}
	read := func(page string) string {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		return fenced.ReplaceAllString(string(text), "")
	}
	for _, page := range pages {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(read(page), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			file := page
			if path != "" {
				file = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: no file %s", page, m[1])
			} else if anchor != "" && !hasHeading(read(file), anchor) {
				t.Errorf("%s: no heading %s", page, m[1])
			}
		}
	}
}

// hasHeading reports whether a page has a heading with an anchor, as GitHub makes them.
func hasHeading(page, anchor string) bool {
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		text := dropped.ReplaceAllString(strings.ToLower(target.ReplaceAllString(m[1], "$1")), "")
		if strings.ReplaceAll(strings.TrimSpace(text), " ", "-") == anchor {
			return true
		}
	}
	return false
}
