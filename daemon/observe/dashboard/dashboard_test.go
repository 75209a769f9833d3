package dashboard

import (
	"crypto/sha256"
	"encoding/base64"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const maxPageBytes = 64 << 10

// between returns what stands between two texts.
func between(t *testing.T, text, begin, end string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, begin)
	inner, _, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("nothing stands between %q and %q", begin, end)
	}
	return inner
}

// The policy lets exactly the styles and the program of the page run.
func TestPolicy(t *testing.T) {
	page, policy := Page()
	for directive, inner := range map[string]string{
		"style-src":  between(t, page, "<style>", "</style>"),
		"script-src": between(t, page, "<script>", "</script>"),
	} {
		sum := sha256.Sum256([]byte(inner))
		want := directive + " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"
		if !strings.Contains(policy, want) {
			t.Errorf("the policy %s has no %s", policy, want)
		}
	}
	for _, never := range []string{"unsafe", "http:", "https:", "*"} {
		if strings.Contains(policy, never) {
			t.Errorf("the policy allows %s: %s", never, policy)
		}
	}
}

// Every script is in the page, and the page asks nobody else for anything.
func TestPageIsWhole(t *testing.T) {
	page, _ := Page()
	names, err := fs.Glob(files, "*.js")
	if err != nil || len(names) != len(scripts) {
		t.Fatalf("%v: %d scripts of %d", err, len(scripts), len(names))
	}
	for _, name := range names {
		if !slices.Contains(scripts, name) || !strings.Contains(page, read(name)) {
			t.Errorf("%s is not in the page", name)
		}
	}
	for _, mark := range []string{"/*styles*/", "/*program*/"} {
		if strings.Contains(page, mark) {
			t.Errorf("%s is still there", mark)
		}
	}
	if len(page) > maxPageBytes {
		t.Errorf("%d bytes, at most %d", len(page), maxPageBytes)
	}
	for _, u := range regexp.MustCompile(`https?://[^"' )]+`).FindAllString(page, -1) {
		if u != "http://www.w3.org/2000/svg" { // a name, not a place
			t.Errorf("the page names %s", u)
		}
	}
}

// What the daemon says becomes text and never markup.
func TestNothingBecomesMarkup(t *testing.T) {
	page, _ := Page()
	for _, way := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser", " style=\"", " onclick=\""} {
		if strings.Contains(page, way) {
			t.Errorf("the page has %s", way)
		}
	}
}

// Elements that the program asks for by their names are there.
func TestElementsExist(t *testing.T) {
	page, _ := Page()
	for _, m := range regexp.MustCompile(`byId\("([a-z-]+)"\)`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `id="`+m[1]+`"`) && !strings.Contains(page, `id: "`+m[1]+`"`) {
			t.Errorf("no element has the name %s", m[1])
		}
	}
}
