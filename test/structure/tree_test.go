package structure

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// module is the import path of the repository, as go.mod has it.
const module = "github.com/overlapd/overlapd"

// goFile is one Go file of the module, whatever its build tags.
type goFile struct {
	path   string // from the repository's root
	dir    string // "." for the root
	source []byte
	syntax *ast.File
	err    error // of reading or parsing it
}

// files has the positions of all files.
var files = token.NewFileSet()

func (f *goFile) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// imports returns the paths that the file imports.
func (f *goFile) imports() []string {
	var paths []string
	for _, i := range f.syntax.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			panic(err) // the parser has accepted it
		}
		paths = append(paths, path)
	}
	return paths
}

// at returns "file:line" of a position.
func (f *goFile) at(p token.Pos) string {
	return f.path + ":" + strconv.Itoa(files.Position(p).Line)
}

// inRoot runs tests in the root of the repository, from which all paths are given. Tests go
// there themselves: what TestMain does the go command does not see, and it would look for
// what they read in this folder, find nothing changed, and answer from its cache.
var inRoot = sync.OnceFunc(func() {
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
})

// walk returns the paths of all files of the repository. Folders that start
// with a dot hold what tools keep; bin holds what was built.
func walk() (paths []string, err error) {
	inRoot()
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "bin" || path == "deploy/image"), // the latter is a module of its own
			d.IsDir() && path != "." && path != ".ci" && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.Type().IsRegular() && path != ".git": // of a worktree, a file
			paths = append(paths, path)
		}
		return nil
	})
	return paths, err
}

// goFiles returns all Go files of the module, parsed.
func goFiles(t *testing.T) []*goFile {
	t.Helper()
	found, err := parseAll()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// parseAll parses once for all tests. The go command builds no file below
// testdata.
var parseAll = sync.OnceValues(func() ([]*goFile, error) {
	paths, err := walk()
	if err != nil {
		return nil, err
	}
	var found []*goFile
	var parsing sync.WaitGroup
	for _, path := range paths {
		if !strings.HasSuffix(path, ".go") || strings.Contains(path, "testdata/") {
			continue
		}
		f := &goFile{path: path, dir: filepath.Dir(path)}
		found = append(found, f)
		parsing.Go(func() {
			if f.source, f.err = os.ReadFile(path); f.err == nil {
				f.syntax, f.err = parser.ParseFile(files, path, f.source, parser.ParseComments|parser.SkipObjectResolution)
			}
		})
	}
	parsing.Wait()
	for _, f := range found {
		err = errors.Join(err, f.err)
	}
	return found, err
})

// folders returns the folders that hold Go files, sorted.
func folders(all []*goFile) []string {
	seen := map[string]bool{}
	for _, f := range all {
		seen[f.dir] = true
	}
	return slices.Sorted(maps.Keys(seen))
}
