package dashboard

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const maxPageBytes = 128 << 10 // of which uPlot is 52

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
	var names []string
	for _, pattern := range []string{"*.js", "*.css", "uplot/*.js", "uplot/*.css"} {
		found, err := fs.Glob(files, pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	parts := slices.Concat(scripts, sheets)
	if len(names) != len(parts) {
		t.Fatalf("%d parts of %d", len(parts), len(names))
	}
	for _, name := range names {
		if !slices.Contains(parts, name) || !strings.Contains(page, read(name)) {
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
		if u != "http://www.w3.org/2000/svg" && !strings.HasPrefix(u, "https://github.com/leeoniya/uPlot") { // names, not places
			t.Errorf("the page names %s", u)
		}
	}
}

// What others made is what they published, and its licence goes along with it.
func TestThirdParty(t *testing.T) {
	for name, want := range thirdParty {
		if sum := sha256.Sum256([]byte(read(name))); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s has the sum %x, want %s", name, sum, want)
		}
	}
	page, _ := Page()
	if !strings.Contains(page, "Copyright (c) 2022 Leon Sorokin") || !strings.Contains(page, "uPlot (v1.6.32)") {
		t.Error("the page does not carry the notice of uPlot")
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
