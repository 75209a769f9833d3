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
	"testing"
)

// Limits on what a package asks of a reader.
var (
	backwards = limit{"% of its references between files run back up", 10,
		"move declarations so that files refer to each other in one direction, or find the package that is missing", map[string]int{
			"cmd/overlapd/load":          30,
			"cuda":                       29,
			"cuda/driver":                15,
			"cuda/mig":                   25,
			"cuda/mps":                   28,
			"executor":                   20,
			"executor/emulated":          50,
			"executor/emulated/device":   31,
			"internal/fakes/fakegpu":     34,
			"internal/fakes/fakemps":     50,
			"internal/report":            15,
			"internal/textfile":          20,
			"lab/baselines":              40,
			"lab/reproduce":              21,
			"lab/sim":                    32,
			"lab/sim/bound":              34,
			"models":                     20,
			"models/zoo":                 15,
			"ort":                        24,
			"overlap":                    24,
			"overlap/journal":            22,
			"overlap/reserve":            36,
			"planning/selection":         20,
			"predictor":                  21,
			"segments":                   23,
			"segments/wire":              14,
			"segments/worker":            20,
			"training":                   25,
			"training/advice":            24,
			"training/fit":               24,
			"internal/fakes/fakeworkers": 20,
			"segments/gpu":               34,
		}}
	exported = limit{"exported names", 50,
		"unexport what only the package uses, or find the package that is missing", map[string]int{
			"daemon/config":              80,
			"daemon/query":               159,
			"executor":                   69,
			"models":                     118,
			"ort":                        91,
			"overlap":                    96,
			"predictor":                  75,
			"segments/wire":              140,
			"daemon/loop":                57,
			"internal/fakes/fakeworkers": 63,
		}}
	uncommented = limit{"lines of code to ten of comment", 67, // a ratio of 0.15; the goal is 0.25
		"say why, and what must hold", map[string]int{
			"cmd/overlapd/load":          82,
			"cmd/overlapd-lab":           356,
			"internal/cli":               83,
			"internal/cli/clitest":       177,
			"internal/fakes/fakeworkers": 94,
			"segments/probe":             142,
		}}
)

const (
	maxTypeFiles    = 4  // that declare the methods of a type
	leastTwinLength = 40 // bytes of a function's body, below which two may be alike
)

// room is what the size of a package is made of.
type room struct {
	files    int
	lines    int
	comments int // lines that hold nothing else
	code     int
	exported int                        // names: of types, functions, constants, variables and methods
	methods  map[string]map[string]bool // the files of the methods of each type
	arrows   int
	back     []string // the references that run back up, "from → to"
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
			r = &room{methods: map[string]map[string]bool{}}
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
	for line := range bytes.Lines(f.source) {
		r.lines++
		switch line = bytes.TrimSpace(line); {
		case bytes.HasPrefix(line, []byte("//")):
			r.comments++
		case len(line) > 0:
			r.code++
		}
	}
	count := func(names ...*ast.Ident) {
		for _, name := range names {
			if name.IsExported() {
				r.exported++
			}
		}
	}
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					count(s.Name)
				case *ast.ValueSpec:
					count(s.Names...)
				}
			}
		case *ast.FuncDecl:
			if d.Recv == nil {
				count(d.Name)
				continue
			}
			of := receiver(d)
			if ast.IsExported(of) {
				count(d.Name)
			}
			if r.methods[of] == nil {
				r.methods[of] = map[string]bool{}
			}
			r.methods[of][f.path] = true
		}
	}
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

// TestSize holds packages to their limits and logs the size of each.
func TestSize(t *testing.T) {
	rooms := sizes(t)
	var sum room
	b, e, c := backwards.in(t), exported.in(t), uncommented.in(t)
	t.Logf("%-34s %5s %6s %8s %8s %7s %5s", "package", "files", "lines", "comments", "exported", "arrows", "back")
	for _, dir := range slices.Sorted(maps.Keys(rooms)) {
		r := rooms[dir]
		t.Logf("%-34s %5d %6d %8.2f %8d %7d %4d%%", dir, r.files, r.lines, r.commented(), r.exported, r.arrows, r.backPercent())
		b.hold(dir, r.backPercent(), r.back...)
		e.hold(dir, r.exported)
		c.hold(dir, 10*r.code/max(r.comments, 1))
		for name, in := range r.methods {
			if len(in) > maxTypeFiles {
				t.Errorf("the methods of %s.%s are in %d files, the limit is %d: name the type that is missing", dir, name, len(in), maxTypeFiles)
			}
		}
		sum.files, sum.lines, sum.exported = sum.files+r.files, sum.lines+r.lines, sum.exported+r.exported
		sum.comments, sum.code = sum.comments+r.comments, sum.code+r.code
	}
	t.Logf("%-34s %5d %6d %8.2f %8d", fmt.Sprintf("all %d packages", len(rooms)), sum.files, sum.lines, sum.commented(), sum.exported)
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

func (r *room) backPercent() int { return (100*len(r.back) + max(r.arrows-1, 0)) / max(r.arrows, 1) }

// commented is how many lines of comment there are to one of code.
func (r *room) commented() float64 { return float64(r.comments) / float64(max(r.code, 1)) }

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
	if err := format.Node(&b, files, d.Body); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
