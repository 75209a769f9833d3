package structure

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Limits on what a reader must hold in mind at once. A type that outgrows them
// holds a concept that has no name yet, and splitting its file would only hide
// that.
const (
	maxMethods      = 40  // of a type, with those that it gets by embedding types of its package
	maxTypeFiles    = 4   // that declare the methods of a type
	maxFiles        = 30  // of a package, without tests
	maxBackArrows   = 10  // percent of a package of the daemon
	maxExported     = 350 // types of the module
	leastTwinLength = 40  // bytes of a function's body, below which two may be alike
)

// room is what the size of a package is made of.
type room struct {
	files    int
	lines    int
	exported int
	types    map[string]*typeSize
	arrows   int
	back     []string // the references that run back up, "from → to"
}

// typeSize counts the methods of a type and the files that declare them.
type typeSize struct {
	methods int
	embeds  []string
	files   map[string]bool
}

// sizes measures every package, tests and generated files apart.
func sizes(t *testing.T) map[string]*room {
	rooms := map[string]*room{}
	inside := map[string][]*goFile{}
	for _, f := range goFiles(t) {
		if f.isTest() || ast.IsGenerated(f.syntax) {
			continue
		}
		r := rooms[f.dir]
		if r == nil {
			r = &room{types: map[string]*typeSize{}}
			rooms[f.dir] = r
		}
		r.add(f)
		inside[f.dir] = append(inside[f.dir], f)
	}
	for dir, files := range inside {
		rooms[dir].arrows, rooms[dir].back = backArrows(files)
	}
	return rooms
}

func (r *room) add(f *goFile) {
	r.files++
	r.lines += bytes.Count(f.source, []byte("\n"))
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					if s.Name.IsExported() {
						r.exported++
					}
					r.sizeOf(s.Name.Name).embeds = embedded(s)
				}
			}
		case *ast.FuncDecl:
			if d.Recv == nil {
				continue
			}
			s := r.sizeOf(receiver(d))
			s.methods++
			s.files[f.path] = true
		}
	}
}

func (r *room) sizeOf(name string) *typeSize {
	if r.types[name] == nil {
		r.types[name] = &typeSize{files: map[string]bool{}}
	}
	return r.types[name]
}

// embedded returns the names of the types of its package that a struct embeds.
func embedded(s *ast.TypeSpec) (names []string) {
	x, ok := s.Type.(*ast.StructType)
	if !ok {
		return nil
	}
	for _, f := range x.Fields.List {
		of := f.Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		if name, ok := of.(*ast.Ident); ok && len(f.Names) == 0 {
			names = append(names, name.Name)
		}
	}
	return names
}

// promoted returns how many methods a type has, with those of the types that it embeds. A method
// that hides another counts twice.
func (r *room) promoted(name string) int {
	s := r.types[name]
	if s == nil {
		return 0
	}
	n := s.methods
	for _, of := range s.embeds {
		n += r.promoted(of)
	}
	return n
}

// large are types above the limit for methods, which they must not exceed further.
var large = map[string]int{
	"daemon.Daemon":        50,
	"daemon.reload":        60,
	"daemon/http.decoder":  44,
	"daemon/http.exchange": 46,
	"lab/sim.balancer":     42,
	"lab/sim.node":         45,
}

// receiver returns the name of the type that a method belongs to.
func receiver(d *ast.FuncDecl) string {
	x := d.Recv.List[0].Type
	for {
		switch y := x.(type) {
		case *ast.StarExpr:
			x = y.X
		case *ast.IndexExpr:
			x = y.X
		case *ast.IndexListExpr:
			x = y.X
		default:
			return x.(*ast.Ident).Name
		}
	}
}

// TestSize holds types and packages to their limits and logs the size of each.
func TestSize(t *testing.T) {
	rooms := sizes(t)
	var sum room
	t.Logf("%-34s %5s %6s %8s %7s %5s", "package", "files", "lines", "exported", "arrows", "back")
	for _, dir := range slices.Sorted(maps.Keys(rooms)) {
		r := rooms[dir]
		t.Logf("%-34s %5d %6d %8d %7d %4.0f%%", dir, r.files, r.lines, r.exported, r.arrows, r.backPercent())
		if r.files > maxFiles {
			t.Errorf("%s has %d files, the limit is %d: which rooms are missing?", dir, r.files, maxFiles)
		}
		if p := r.backPercent(); below(dir, "daemon") && p >= maxBackArrows {
			t.Errorf("%s: %.0f %% of the references between its files run back up, it must be less than %d %%: %s", dir, p, maxBackArrows, strings.Join(r.back, ", "))
		}
		for _, name := range slices.Sorted(maps.Keys(r.types)) {
			n, most := r.promoted(name), max(maxMethods, large[dir+"."+name])
			if s := r.types[name]; n > most || len(s.files) > maxTypeFiles {
				t.Errorf("%s.%s has %d methods in %d files, the limits are %d and %d: which type is missing?",
					dir, name, n, len(s.files), most, maxTypeFiles)
			}
		}
		sum.files, sum.lines, sum.exported = sum.files+r.files, sum.lines+r.lines, sum.exported+r.exported
	}
	t.Logf("%-34s %5d %6d %8d", fmt.Sprintf("all %d packages", len(rooms)), sum.files, sum.lines, sum.exported)
	if sum.exported > maxExported {
		t.Errorf("%d types are exported, the limit is %d: each must earn its place in front of a newcomer", sum.exported, maxExported)
	}
}

// TestLines logs how many lines of Go there are, by what they are for.
func TestLines(t *testing.T) {
	lines := map[string]int{}
	for _, f := range goFiles(t) {
		lines[purpose(f)] += bytes.Count(f.source, []byte("\n"))
	}
	for _, kind := range slices.Sorted(maps.Keys(lines)) {
		t.Logf("%-9s %6d", kind, lines[kind])
	}
}

// purpose returns what a file is for. Fakes are what tests run against.
func purpose(f *goFile) string {
	switch {
	case f.isTest() || below(f.dir, "test") || f.dir == "internal/cli/clitest":
		return "tests"
	case below(f.dir, "internal/fakes"):
		return "fakes"
	case ast.IsGenerated(f.syntax):
		return "generated"
	case below(f.dir, "lab") || f.dir == "cmd/overlapd-lab":
		return "lab"
	}
	return "product"
}

func (r *room) backPercent() float64 { return 100 * float64(len(r.back)) / float64(max(r.arrows, 1)) }

// backArrows counts the pairs of files of a package of which one refers to what
// the other declares, and how many of those run against the order of the files
// that has the fewest such (by the heuristic of Eades, Lin and Smyth). A package
// that reads from top to bottom has none.
func backArrows(files []*goFile) (all int, back []string) {
	uses := references(files)
	place := map[int]int{}
	for i, file := range order(uses) {
		place[file] = i
	}
	for from, to := range uses {
		for _, file := range slices.Sorted(maps.Keys(to)) {
			all++
			if place[file] < place[from] {
				back = append(back, filepath.Base(files[from].path)+" → "+filepath.Base(files[file].path))
			}
		}
	}
	return all, back
}

// references returns, for each file, the files that declare what it names: the
// package's functions, types, constants and variables, and the methods whose
// name only one type has.
func references(files []*goFile) []map[int]bool {
	declared := map[string]int{}
	const several = -1
	note := func(name string, file int) {
		if at, ok := declared[name]; ok && at != file {
			file = several
		}
		declared[name] = file
	}
	for i, f := range files {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if n, ok := n.(*ast.StructType); ok {
				for _, field := range n.Fields.List {
					for _, name := range field.Names {
						declared["."+name.Name] = several // a selector may be the field
					}
				}
			}
			return true
		})
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					note("."+d.Name.Name, i)
				} else {
					note(d.Name.Name, i)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						note(s.Name.Name, i)
					case *ast.ValueSpec:
						for _, n := range s.Names {
							note(n.Name, i)
						}
					}
				}
			}
		}
	}
	uses := make([]map[int]bool, len(files))
	for i, f := range files {
		uses[i] = map[int]bool{}
		use := func(name string) {
			if at, ok := declared[name]; ok && at != several && at != i {
				uses[i][at] = true
			}
		}
		imported := map[string]bool{}
		for _, name := range f.imports() {
			imported[path.Base(name)] = true
		}
		for _, d := range f.syntax.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Recv != nil {
				use(receiver(d)) // a method belongs under its type
			}
			var visit func(n ast.Node) bool
			visit = func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr: // what another package declares is none of ours
					if x, ok := n.X.(*ast.Ident); !ok || !imported[x.Name] {
						use("." + n.Sel.Name)
					}
					ast.Inspect(n.X, visit)
					return false
				case *ast.Field: // its names are not ours to find elsewhere
					ast.Inspect(n.Type, visit)
					return false
				case *ast.KeyValueExpr:
					if _, ok := n.Key.(*ast.Ident); !ok {
						ast.Inspect(n.Key, visit)
					}
					ast.Inspect(n.Value, visit)
					return false
				case *ast.Ident:
					use(n.Name)
				}
				return true
			}
			ast.Inspect(d, visit)
		}
	}
	return uses
}

// order returns the files so that few references run back: those that nobody
// refers to first, those that refer to nobody last, and in between the one that
// refers to most more than it is referred to.
func order(uses []map[int]bool) []int {
	left := map[int]bool{}
	for i := range uses {
		left[i] = true
	}
	degrees := func(file int) (in, out int) {
		for other := range left {
			if uses[other][file] {
				in++
			}
			if uses[file][other] {
				out++
			}
		}
		return in, out
	}
	var first, last []int
	for len(left) > 0 {
		best, score := -1, 0
		for _, file := range slices.Sorted(maps.Keys(left)) {
			in, out := degrees(file)
			switch {
			case out == 0:
				last = append(last, file)
				delete(left, file)
			case in == 0:
				first = append(first, file)
				delete(left, file)
			default:
				if best < 0 || out-in > score {
					best, score = file, out-in
				}
				continue
			}
			best = -1
			break
		}
		if best >= 0 {
			first = append(first, best)
			delete(left, best)
		}
	}
	slices.Reverse(last)
	return append(first, last...)
}

// declared is a function, which another package may have as well.
type declared struct {
	in *goFile
	*ast.FuncDecl
}

// TestNoTwins fails where two packages declare a function of one name with the
// same body: it has then no home of its own.
func TestNoTwins(t *testing.T) {
	named := map[string][]declared{}
	for _, f := range goFiles(t) {
		if f.isTest() || ast.IsGenerated(f.syntax) {
			continue
		}
		for _, d := range f.syntax.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
				named[d.Name.Name] = append(named[d.Name.Name], declared{f, d})
			}
		}
	}
	for name, all := range named {
		seen := map[string]declared{} // by body
		for _, d := range all {
			if len(all) == 1 {
				break
			}
			body := bodyOf(t, d.in, d.FuncDecl)
			if other, ok := seen[body]; !ok {
				seen[body] = d
			} else if other.in.dir != d.in.dir && len(body) >= leastTwinLength {
				t.Errorf("%s: %s is declared with the same body at %s", d.in.at(d.Pos()), name, other.in.at(other.Pos()))
			}
		}
	}
}

// bodyOf returns the body of a function without its comments.
func bodyOf(t *testing.T, f *goFile, d *ast.FuncDecl) string {
	t.Helper()
	var b bytes.Buffer
	if err := format.Node(&b, f.fset, d.Body); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
