package structure

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
)

// maxTextBytes is the size up to which a file is searched for words.
const maxTextBytes = 1 << 20

// TestPackageDocs holds every package to a comment that says what it is.
func TestPackageDocs(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range goFiles(t) {
		if !f.isTest() && f.syntax.Doc != nil {
			if documented[f.dir] {
				t.Errorf("%s: the package has its comment elsewhere already", f.path)
			}
			documented[f.dir] = true
			if first := f.syntax.Doc.Text(); f.syntax.Name.Name != "main" && !strings.HasPrefix(first, "Package "+f.syntax.Name.Name+" ") {
				t.Errorf("%s: the comment must begin with \"Package %s\"", f.path, f.syntax.Name.Name)
			}
		}
	}
	for _, dir := range folders(goFiles(t)) {
		if !documented[dir] {
			t.Errorf("%s has no package comment: say in doc.go what it is, in one sentence", dir)
		}
	}
}

// TestPackageNames refuses names that say nothing of what is inside.
func TestPackageNames(t *testing.T) {
	empty := []string{"util", "utils", "common", "types", "helper", "helpers", "manager", "misc", "base", "shared", "lib"}
	for _, f := range goFiles(t) {
		name := strings.TrimSuffix(f.syntax.Name.Name, "_test")
		if slices.Contains(empty, name) {
			t.Errorf("%s: a package named %s would hold anything; name it after what it holds", f.path, name)
		}
		if name != "main" && f.dir != "." && name != path.Base(f.dir) {
			t.Errorf("%s: package %s lies in a folder of another name", f.path, name)
		}
	}
}

// TestMakeSaysThatItCompiles runs make where everything that it calls does nothing: the first
// build says how long it takes, those after it are silent.
func TestMakeSaysThatItCompiles(t *testing.T) {
	inRoot()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"demo", "run"} {
		dir := t.TempDir()
		write := func(name, text string) {
			name = path.Join(dir, name)
			if err := errors.Join(os.MkdirAll(path.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		write("Makefile", string(makefile))
		write("scripts/fetch-ort", "#!/bin/sh\n")
		write("path/go", "#!/bin/sh\nif [ \"$1\" = build ]; then mkdir -p bin; printf '#!/bin/sh\\n' >bin/overlapd; chmod +x bin/overlapd; fi\n")
		for again := range 2 {
			cmd := exec.Command("make", "-C", dir, target, "CACHE_DIR="+dir)
			cmd.Env = append(os.Environ(), "PATH="+path.Join(dir, "path")+":"+os.Getenv("PATH"), "MAKEFLAGS=")
			said, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("make %s: %v\n%s", target, err, said)
			}
			before, _, built := strings.Cut(string(said), "go build")
			if says := strings.Contains(before, "one to three minutes"); !built || says != (again == 0) {
				t.Errorf("make %s, run %d:\n%s", target, again+1, said)
			}
		}
	}
}

// TestFormat asks gofmt itself: under the race detector go/format takes a minute
// for all files.
func TestFormat(t *testing.T) {
	args := []string{"-l"}
	for _, f := range goFiles(t) {
		args = append(args, f.path)
	}
	if out, err := exec.Command("gofmt", args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("not as gofmt leaves it: %v\n%s", err, out)
	}
}

// foreign are words that belong to one machine or one way of building and not
// into the repository. They are split here, so that this file has none.
var foreign = []string{
	"/wo" + "rk/", "/ro" + "ot/", "/tm" + "p/w/",
	"../sha" + "red", "/sha" + "red/",
	"registry.npm" + "js.org", "py" + "pi.org", "python" + "hosted.org",
	"proxy.go" + "lang.org", "sum.go" + "lang.org", "deb.deb" + "ian.org",
}

// foreignIn returns the place of a foreign word in a text, -1 if there is none.
func foreignIn(text []byte) int {
	for _, word := range foreign {
		if at := bytes.Index(text, []byte(word)); at >= 0 {
			return at
		}
	}
	return -1
}

// TestForeignWords keeps paths of a machine and hosts of registries out: what
// is fetched comes from whatever registry the client is set up for.
func TestForeignWords(t *testing.T) {
	paths, err := walk()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil || info.Size() > maxTextBytes {
			continue // gone since, or no text
		}
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(text, 0) >= 0 {
			continue
		}
		if at := foreignIn(text); at >= 0 {
			word, _, _ := bytes.Cut(text[at:], []byte("\n"))
			t.Errorf("%s:%d: the foreign word %q", p, 1+bytes.Count(text[:at], []byte("\n")), word)
		}
	}
}

// fence finds the TOML blocks of a Markdown file.
var fence = regexp.MustCompile("(?ms)^```toml\n(.*?)^```")

// TestExampleConfigurations reads every configuration that people may copy:
// the files of docs/examples, and whole ones in Markdown files.
func TestExampleConfigurations(t *testing.T) {
	paths, err := walk()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		switch {
		case strings.Contains(p, "testdata/"):
		case path.Dir(p) == "docs/examples" && path.Ext(p) == ".toml":
			checkExample(t, p, readFile(t, p))
		case path.Ext(p) == ".md":
			for _, block := range fence.FindAllSubmatch(readFile(t, p), -1) {
				if bytes.Contains(block[1], []byte("[[service]]")) {
					checkExample(t, p, block[1])
				}
			}
		}
	}
}

func checkExample(t *testing.T, path string, text []byte) {
	t.Helper()
	c, err := config.Parse(path, text)
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		t.Errorf("%s cannot be used: %v\n%s", path, err, text)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	inRoot()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
