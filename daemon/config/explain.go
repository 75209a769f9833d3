package config

import (
	"embed"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"sync"

	"github.com/agext/levenshtein"
)

// explanation is what users read about one key. The key service.target is that of every
// service.
type explanation struct {
	Key     string `json:"key"`
	Type    string `json:"type"`
	Meaning string `json:"meaning"`

	// Default is JSON, null where there is no default. Missing then says what holds without
	// the key.
	Default json.RawMessage `json:"default"`
	Missing string          `json:"missing,omitempty"`

	// Reload is how a running daemon takes another value: "restart" if it does not, "now",
	// or for a key of a service "worker", "replicas" or "name", as [key] says.
	Reload string `json:"reload"`

	InEffect []effective `json:"in_effect,omitempty"`
}

// effective is a value in effect, as JSON, and whose it is: a service, a variant
// (SERVICE/VARIANT) or a device, or nobody's for a key outside their tables.
type effective struct {
	Of    string          `json:"of,omitempty"`
	Value json.RawMessage `json:"value"`
}

// Explain explains a key, or each key of a table, or with no name every key. The values in
// effect are those of a configuration, unless that is nil. The name of a key may lack the
// table if it is unique, and that of a table may have brackets, which tell [device] from the
// key device.
func Explain(name string, c *Config) ([]explanation, error) {
	all := reference()
	found := find(name, all)
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("the key %s is unknown%s", name, nearest(name, all))
	case name != "" && len(found) > 1 && found[0].table() != found[1].table():
		var names []string
		for i := range found {
			names = append(names, found[i].Key)
		}
		return nil, fmt.Errorf("%s is a key of several tables: name one of %s", name, strings.Join(names, ", "))
	case c != nil:
		values := inEffect(*c)
		for i := range found {
			found[i].InEffect = values[found[i].Key]
		}
	}
	return found, nil
}

// find returns the key of a name, else the keys of the table of that name, else all keys
// that have the name in their tables.
func find(name string, all []explanation) (found []explanation) {
	table := strings.Trim(name, "[]")
	for _, is := range []func(*explanation) bool{
		func(e *explanation) bool { return e.Key == name || name == "" },
		func(e *explanation) bool { return table != "" && e.table() == table },
		func(e *explanation) bool { return strings.HasSuffix(e.Key, "."+name) },
	} {
		for i := range all {
			if is(&all[i]) {
				found = append(found, all[i])
			}
		}
		if len(found) > 0 {
			break
		}
	}
	return found
}

// table returns the table of the key, "" for the keys above all tables.
func (e *explanation) table() string { return e.Key[:max(strings.LastIndexByte(e.Key, '.'), 0)] }

// nearest asks whether a known key or table was meant by an unknown name. A key may be
// written without its table.
func nearest(name string, all []explanation) string {
	best, within := "", max(1, len(name)/3)+1
	for i := range all {
		key, table := all[i].Key, all[i].table()
		for _, known := range []struct{ spelling, meant string }{
			{key, key}, {strings.TrimPrefix(key, table+"."), key}, {"[" + table + "]", "[" + table + "]"},
		} {
			if d := levenshtein.Distance(name, known.spelling, nil); d < within && known.meant != "[]" {
				best, within = known.meant, d
			}
		}
	}
	if best == "" {
		return ": overlapd check prints all keys"
	}
	return fmt.Sprintf(", did you mean %s?", best)
}

// reference returns what users read about each key, in the order of the declarations.
func reference() (all []explanation) {
	said := sentences()
	declared := Config{Devices: make(Pool, 1), Services: []Service{{Variants: make([]Variant, 1)}}}
	declared.keys(func(k key) {
		if !k.isTables() {
			e := k.explained()
			e.Meaning = said[e.Key]
			all = append(all, e)
		}
	})
	return all
}

// explained returns what the tags of a key say.
func (k key) explained() explanation {
	e := explanation{Key: entryNumber.ReplaceAllString(k.name, ""), Type: k.typeName(), Missing: k.tag.Get("missing"), Reload: "restart"}
	if text, ok := k.tag.Lookup("default"); ok {
		e.Default = inJSON(k.declared(text))
	} else if e.Missing == "" {
		e.Default = inJSON(reflect.Zero(k.value.Type()))
	}
	if reload, ok := k.tag.Lookup("reload"); ok {
		e.Reload = reload
	} else if strings.HasPrefix(e.Key, "service.") {
		e.Reload = "now"
	}
	return e
}

// inJSON returns a value in JSON, which a TOML value of these types is, too.
func inJSON(v reflect.Value) json.RawMessage { return json.RawMessage(format(v)) }

// typeName returns the type of a key in words, with its bounds.
func (k key) typeName() string {
	name := written[k.value.Type()].name
	least, most := k.tag.Get("min"), k.tag.Get("max")
	switch words := k.tag.Get("oneof"); {
	case words != "":
		return `"` + strings.ReplaceAll(words, ",", `", "`) + `"`
	case k.tag.Get("path") != "" && k.value.Kind() == reflect.Slice:
		return "list of paths"
	case k.tag.Get("path") != "":
		return "path"
	case k.tag.Get("zero") != "":
		return fmt.Sprintf("%s, 0 or at least %s", name, least)
	case most != "":
		return fmt.Sprintf("%s, %s to %s", name, least, most)
	case least != "" && k.declared(least).Int() > 1:
		return fmt.Sprintf("%s, at least %s", name, least)
	}
	return name
}

// inEffect returns the values of each key in a configuration: one for each service, variant
// or device that has the key.
func inEffect(c Config) map[string][]effective {
	c.Services = folded(expanded(c.Services)) // variants with the names that they have
	values := map[string][]effective{}
	names := map[string]string{} // by table, such as service[1].variant[0]
	c.keys(func(k key) {
		if k.isTables() || k.name == deviceKey && len(c.Devices) > 0 { // the pool is in effect instead
			return
		}
		table, name := "", k.name
		if dot := strings.LastIndexByte(k.name, '.'); dot >= 0 {
			table, name = k.name[:dot], k.name[dot+1:]
		}
		if strings.HasSuffix(table, "]") && name == "name" { // which is the first key of such a table
			names[table] = k.value.String()
			if outer := strings.LastIndexByte(table, '.'); outer >= 0 {
				names[table] = names[table[:outer]] + variantOf + names[table]
			}
		}
		of := entryNumber.ReplaceAllString(k.name, "")
		values[of] = append(values[of], effective{Of: names[table], Value: inJSON(k.value)})
	})
	return values
}

//go:generate go test -count=1 -run ^TestReference$ . -update

//go:embed config.go pool.go service.go
var declarations embed.FS

// sentences returns the comment above the field of each key, by the name of the key.
var sentences = sync.OnceValue(func() map[string]string {
	types := map[string]ast.Expr{}
	for _, file := range []string{"config.go", "pool.go", "service.go"} {
		source, err := declarations.ReadFile(file)
		if err != nil {
			panic(err)
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), file, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			panic(err) // it was compiled
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			if t, ok := n.(*ast.TypeSpec); ok {
				types[t.Name.Name] = t.Type
			}
			return true
		})
	}
	said := map[string]string{}
	var visit func(prefix string, t ast.Expr)
	visit = func(prefix string, t ast.Expr) {
		switch t := t.(type) {
		case *ast.Ident:
			visit(prefix, types[t.Name])
		case *ast.ArrayType:
			visit(prefix, t.Elt)
		case *ast.StructType:
			for _, f := range t.Fields.List {
				name := ""
				if f.Tag != nil {
					name = reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("toml")
				}
				inside := prefix
				if name != "" {
					inside += name + "."
					if said[prefix+name] == "" {
						said[prefix+name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
					}
				}
				visit(inside, f.Type)
			}
		}
	}
	visit("", types["Config"])
	return said
})
