package structure

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
)

// typed are the packages of the module with their types, and what the checker found in them.
type typed struct {
	fset     *token.FileSet
	info     *types.Info
	packages map[string]*types.Package
	files    map[string][]*goFile // those that are built here
	standard types.ImporterFrom
}

// checkAll checks the types of all packages once for all tests. The standard library is read from
// its source. Other modules count as empty: what they declare is not ours to limit, so the errors
// that follow are ignored.
var checkAll = sync.OnceValues(func() (*typed, error) {
	all, err := parseAll()
	if err != nil {
		return nil, err
	}
	c := &typed{fset: files, packages: map[string]*types.Package{}, files: map[string][]*goFile{}, info: &types.Info{
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
	}}
	ours := build.Default
	build.Default.CgoEnabled = false // the importer would run cgo
	defer func() { build.Default = ours }()
	c.standard = importer.ForCompiler(c.fset, "source", nil).(types.ImporterFrom)
	for _, f := range all {
		if built, err := ours.MatchFile(f.dir, path.Base(f.path)); err != nil {
			return nil, err
		} else if built && !f.isTest() {
			c.files[f.dir] = append(c.files[f.dir], f)
		}
	}
	for dir := range c.files {
		if _, err := c.Import(module + "/" + dir); err != nil {
			return nil, err
		}
	}
	return c, nil
})

// Import implements [types.Importer].
func (c *typed) Import(name string) (*types.Package, error) {
	if p := c.packages[name]; p != nil {
		return p, nil
	}
	dir, ours := strings.CutPrefix(name, module+"/")
	first, _, _ := strings.Cut(name, "/")
	var p *types.Package
	switch {
	case ours && len(c.files[dir]) > 0:
		var syntax []*ast.File
		for _, f := range c.files[dir] {
			syntax = append(syntax, f.syntax)
		}
		lenient := types.Config{Importer: c, FakeImportC: true, Error: func(error) {}}
		p, _ = lenient.Check(name, c.fset, syntax, c.info)
	case strings.Contains(first, "."):
		p = types.NewPackage(name, path.Base(name))
		p.MarkComplete()
	default:
		var err error
		if p, err = c.standard.ImportFrom(name, "", 0); err != nil {
			return nil, err
		}
	}
	c.packages[name] = p
	return p, nil
}

// named calls visit for each type that a package of ours declares, with its name in messages.
func (c *typed) named(visit func(name string, t *types.Named)) {
	for dir := range c.files {
		p := c.packages[module+"/"+dir]
		for _, name := range p.Scope().Names() {
			if o, ok := p.Scope().Lookup(name).(*types.TypeName); ok && !o.IsAlias() {
				if t, ok := o.Type().(*types.Named); ok && !o.IsAlias() {
					visit(dir+"."+name, t)
				}
			}
		}
	}
}

// methodsOf returns how many methods one may call on a value of the type, promoted ones included.
func methodsOf(t *types.Named) (n int) {
	set := types.NewMethodSet(types.NewPointer(t))
	if types.IsInterface(t) {
		set = types.NewMethodSet(t)
	}
	for i := range set.Len() {
		if m := set.At(i).Obj(); m.Exported() || m.Pkg() == t.Obj().Pkg() {
			n++
		}
	}
	return n
}

// fieldsOf returns how many fields of a struct one may select, promoted ones included.
func fieldsOf(t *types.Named) int {
	seen := map[string]bool{}
	var add func(t types.Type)
	add = func(of types.Type) {
		if p, ok := of.Underlying().(*types.Pointer); ok {
			of = p.Elem()
		}
		s, ok := of.Underlying().(*types.Struct)
		if !ok {
			return
		}
		for f := range s.Fields() {
			if (f.Exported() || f.Pkg() == t.Obj().Pkg()) && !seen[f.Name()] {
				seen[f.Name()] = true
				if f.Embedded() {
					add(f.Type())
				}
			}
		}
	}
	add(t)
	return len(seen)
}

// Limits on what a reader must hold in mind of one type. A type that outgrows them holds a concept
// that has no name yet. Embedding hides nothing: what it promotes counts.
var (
	methods = limit{"methods, promoted ones included", 40, "name the type that is missing", nil}
	fields  = limit{"fields, promoted ones included", 25, "name the type that is missing", map[string]int{
		"cmd/overlapd/load.Result":      28,
		"daemon/config.Config":          28,
		"daemon/status.Service":         41,
		"lab/sim.Result":                28,
		"lab/sim.Scenario":              30,
		"overlap.batch":                 26,
		"overlap.joiner":                27,
		"overlap/journal.Record":        30,
		"cmd/overlapd-lab.scenarioFile": 35,
	}}
)

// TestTypes holds each type to the limits.
func TestTypes(t *testing.T) {
	c, err := checkAll()
	if err != nil {
		t.Fatal(err)
	}
	m, f := methods.in(t), fields.in(t)
	c.named(func(name string, of *types.Named) {
		m.hold(name, methodsOf(of))
		f.hold(name, fieldsOf(of))
	})
}

// assigned are fields of function types that are assigned after their struct was made, which
// closes a circle that no import shows. A field must be missing here: pass the function to what
// makes the struct, or declare an interface.
var assigned = []string{
	"daemon/loop.job.then",
	"internal/fakes/fakeworkers.Workers.events",
	"cmd/overlapd/load.conn.release",
	"daemon/admin.conn.free",
	"daemon/http.events.allowed",
	"daemon/learning.Read.begin",
	"daemon/query.Place.evict",
	"daemon/query.Server.Load",
	"daemon/rpc.conn.begin",
	"executor.conn.Yield",
	"lab/reproduce.Options.Progress",
	"overlap.heap[*overlap.batch].before",
	"overlap.heap[*overlap.batch].moved",
	"planning.Search.Progress",
	"segments.Config.Progress",
	"segments/wire.Socket.onIdle",
	"training/advice.soloCell.costs",
	"training/fit.Options.Progress",
}

// TestFunctionFields finds assignments to fields of function types in structs that were made before.
// What cancels a context is no circle.
func TestFunctionFields(t *testing.T) {
	c, err := checkAll()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{} // where, by the name of the field
	for _, files := range c.files {
		for _, f := range files {
			for _, d := range f.syntax.Decls {
				if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
					c.assignments(d, func(field string, at token.Pos) { found[field] = f.at(at) })
				}
			}
		}
	}
	for field, at := range found {
		if !slices.Contains(assigned, field) {
			t.Errorf("%s: the function %s is assigned after its struct was made: pass it to what makes the struct, or declare an interface", at, field)
		}
	}
	for _, field := range assigned {
		if found[field] == "" {
			t.Errorf("the function %s is not assigned any more: delete its entry", field)
		}
	}
}

// assignments calls found for each field of a function type that a function assigns where it
// should not.
func (c *typed) assignments(in *ast.FuncDecl, found func(field string, at token.Pos)) {
	ast.Inspect(in.Body, func(n ast.Node) bool {
		a, ok := n.(*ast.AssignStmt)
		if !ok {
			return true
		}
		for _, to := range a.Lhs {
			x, ok := to.(*ast.SelectorExpr)
			if !ok {
				continue
			}
			s := c.info.Selections[x]
			if s == nil || s.Kind() != types.FieldVal || s.Obj().Pkg() == nil || !below(s.Obj().Pkg().Path(), module) {
				continue
			}
			if _, ok := s.Obj().Type().Underlying().(*types.Signature); !ok || strings.HasPrefix(s.Obj().Type().String(), "context.Cancel") || c.making(x.X, in) {
				continue
			}
			of := types.TypeString(s.Recv(), func(p *types.Package) string { return strings.TrimPrefix(p.Path(), module+"/") })
			found(fmt.Sprintf("%s.%s", strings.TrimPrefix(of, "*"), s.Obj().Name()), x.Pos())
		}
		return true
	})
}

// making reports whether a function makes the struct that x is: it is a variable of the function, or
// part of one, and not what a pointer refers to, unless the function returns it and is in the file
// of its type.
func (c *typed) making(x ast.Expr, in *ast.FuncDecl) bool {
	for {
		s, ok := x.(*ast.SelectorExpr)
		if !ok || c.info.Selections[s] == nil || pointer(c.info.Selections[s].Type()) {
			break
		}
		x = s.X
	}
	id, ok := x.(*ast.Ident)
	if !ok {
		return false
	}
	v, ok := c.info.ObjectOf(id).(*types.Var)
	if !ok || v.Pos() < in.Pos() || v.Pos() >= in.End() {
		return false
	}
	if !pointer(v.Type()) {
		return true
	}
	of, ok := deref(v.Type()).(*types.Named)
	if !ok || c.fset.File(of.Obj().Pos()) != c.fset.File(in.Pos()) {
		return false
	}
	for r := range c.info.Defs[in.Name].(*types.Func).Signature().Results().Variables() {
		if types.Identical(deref(r.Type()), of) {
			return true
		}
	}
	return false
}

func pointer(t types.Type) bool {
	_, ok := t.Underlying().(*types.Pointer)
	return ok
}

func deref(t types.Type) types.Type {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		return p.Elem()
	}
	return t
}
