package config

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/planning"
)

// Load reads and validates the configuration file at path and applies the plan that it
// names.
func Load(path string) (Config, error) {
	data, err := textfile.ReadRegular(path, maxBytes)
	if err != nil && len(data) <= maxBytes { // Parse reports a file that is too large
		return Config{}, err
	}
	c, err := Parse(path, data)
	if err != nil || c.Plan == "" {
		return c, err
	}
	p, err := planning.ReadPlacement(c.Plan)
	if err == nil {
		err = follow(&c, p)
	}
	if err != nil {
		return Config{}, Faults{{Key: planKey, Message: fmt.Sprintf(
			"%v --config %s --out %s, or leave plan out: services then run where there is room", err, path, c.Plan)}}.in(path, data)
	}
	if f := pipelineFaults(c.Policy, c.Services); len(f) > 0 {
		return Config{}, f.in(path, data)
	}
	return c, nil
}

// in sets the file and line of each fault and sorts the faults by line.
func (f Faults) in(path string, data []byte) Faults {
	at := findLines(data)
	for i := range f {
		f[i].File, f[i].Line = path, at.of(f[i].Key)
	}
	slices.SortStableFunc(f, func(a, b complaint) int { return cmp.Compare(a.Line, b.Line) })
	return f
}

// Parse parses and validates a configuration. path is used in messages, and relative paths
// in the file are relative to its folder. The error is a Faults with everything that is
// wrong; if the file is not TOML, that is the only fault.
func Parse(path string, data []byte) (Config, error) {
	if len(data) > maxBytes {
		return Config{}, Faults{{File: path, Message: fmt.Sprintf("the file is larger than %d bytes", maxBytes)}}
	}
	var tree map[string]any
	if err := toml.Unmarshal(data, &tree); err != nil {
		f := complaint{File: path, Message: err.Error()}
		if d, ok := errors.AsType[*toml.DecodeError](err); ok {
			f.Line, _ = d.Position()
			f.Key = strings.Join(d.Key(), ".")
			// Setting both device forms makes the TOML decoder itself fail, with a message
			// that does not help.
			if f.Key == deviceKey && strings.Contains(f.Message, "array") {
				f.Message = deviceForms
			}
		}
		return Config{}, Faults{f}
	}
	c := Default()
	faults := c.read(tree)
	faults = append(faults, c.faults()...)
	if len(faults) > 0 {
		return Config{}, faults.in(path, data)
	}
	c.resolve(filepath.Dir(path))
	c.Services = Versioned(c.Services)
	return c, nil
}

// resolve makes relative paths absolute or relative to the working directory, by joining
// them with dir.
func (c *Config) resolve(dir string) {
	in := func(path *string) {
		if *path != "" && !filepath.IsAbs(*path) && !IsURL(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
	c.keys(func(k key) {
		if k.tag.Get("path") == "" {
			return
		}
		switch paths := k.value.Addr().Interface().(type) {
		case *string:
			in(paths)
		case *[]string:
			for i := range *paths {
				in(&(*paths)[i])
			}
		}
	})
	if c.AdminChosen() {
		in(&c.Admin.Socket)
	}
	for i := range c.Services {
		s := &c.Services[i]
		models := []*string{&s.Model}
		for j := range s.Variants {
			models = append(models, &s.Variants[j].Model)
		}
		for _, model := range models {
			if IsPath(*model) {
				in(model)
			}
		}
	}
}

// read assigns the keys of a file to the configuration and returns what is wrong with them.
// It removes keys from their tables as it finds them, so that the remaining ones are
// unknown.
func (c *Config) read(file map[string]any) (f Faults) {
	// Tables by the prefix of their keys.
	tables := map[string]map[string]any{"": file}
	var known []string
	c.keys(func(k key) {
		dot := strings.LastIndexByte(k.name, '.') + 1
		prefix, name := k.name[:dot], k.name[dot:]
		known = append(known, k.name, strings.TrimSuffix(prefix, "."))
		table, ok := tables[prefix]
		if !ok { // otherwise it is an entry of an array
			of := strings.TrimSuffix(prefix, ".")
			v, said := file[of]
			delete(file, of)
			table, ok = v.(map[string]any)
			f.when(said && !ok, of, "must be a table")
			tables[prefix] = table
		}
		v, said := table[name]
		if _, list := v.([]any); said && k.name == deviceKey && list != k.isTables() {
			return // it is the other of the two keys of this name
		}
		delete(table, name)
		switch {
		case !said:
		case k.isTables():
			f.readTables(k, v, tables)
		default:
			fault := set(k.value, v)
			if fault != "" && k.name == deviceKey {
				fault = deviceForms
			}
			f.when(fault != "", k.name, "%s", fault)
		}
	})
	for prefix, left := range tables {
		for name := range left {
			f.add(prefix+name, "unknown key%s", cmp.Or(Guess(prefix, name, known), ": delete it, or choose one that overlapd check --embedded prints"))
		}
	}
	return f
}

// readTables creates the entries of an array of tables with their defaults. walk visits
// their keys afterwards.
func (f *Faults) readTables(k key, v any, tables map[string]map[string]any) {
	list, ok := v.([]any)
	most, _ := strconv.Atoi(k.tag.Get("max"))
	if f.when(!ok, k.name, "must be an array of tables: [[%s]]", entryNumber.ReplaceAllString(k.name, "")) ||
		f.when(len(list) > most, k.name, "has %d entries, and the limit is %d", len(list), most) {
		return
	}
	for i := range list {
		table, ok := list[i].(map[string]any)
		if f.when(!ok, fmt.Sprintf("%s[%d]", k.name, i), "must be a table") {
			continue
		}
		tables[fmt.Sprintf("%s[%d].", k.name, k.value.Len())] = table
		entry := reflect.New(k.value.Type().Elem())
		setDefaults(entry.Interface())
		k.value.Set(reflect.Append(k.value, entry.Elem()))
	}
}

// lines maps each key of a TOML file to its line. Keys are written with dots, entries of an
// array of tables with their index: service[1].name.
type lines map[string]int

// findLines returns the lines of the keys in data, which must be valid TOML.
func findLines(data []byte) lines {
	at := lines{}
	// Number of entries of each array of tables so far.
	arrays := map[string]int{}
	var p unstable.Parser
	p.Reset(data)
	prefix := ""
	for p.NextExpression() {
		node := p.Expression()
		switch node.Kind {
		case unstable.Table, unstable.ArrayTable:
			key, line := joinKey(&p, "", node.Key())
			if of, name, inside := strings.Cut(key, "."); inside && arrays[of] > 0 { // it belongs to the latest entry
				key = of + "[" + strconv.Itoa(arrays[of]-1) + "]." + name
			}
			if node.Kind == unstable.ArrayTable {
				arrays[key]++
				key += "[" + strconv.Itoa(arrays[key]-1) + "]"
			}
			at[key] = line
			prefix = key + "."
		case unstable.KeyValue:
			at.keyValue(&p, prefix, node)
		}
	}
	return at
}

// keyValue records the line of a key, and of the keys in its value.
func (at lines) keyValue(p *unstable.Parser, prefix string, node *unstable.Node) {
	key, line := joinKey(p, prefix, node.Key())
	at[key] = line
	at.inside(p, key, node.Value())
}

// inside records the lines of keys in inline tables, which may be in arrays.
func (at lines) inside(p *unstable.Parser, key string, v *unstable.Node) {
	n := 0
	for it := v.Children(); it.Next(); {
		switch v.Kind {
		case unstable.InlineTable:
			at.keyValue(p, key+".", it.Node())
		case unstable.Array:
			at.inside(p, key+"["+strconv.Itoa(n)+"]", it.Node())
			n++
		}
	}
}

// joinKey returns a key with its prefix, and its line.
func joinKey(p *unstable.Parser, prefix string, parts unstable.Iterator) (key string, line int) {
	var names []string
	for parts.Next() {
		names = append(names, string(parts.Node().Data))
		line = p.Shape(parts.Node().Raw).Start.Line
	}
	return prefix + strings.Join(names, "."), line
}

// of returns the line of a key, or that of the table from which the key is missing.
func (at lines) of(key string) int {
	for key != "" {
		for _, k := range []string{key, key + "[0]"} { // an array of tables is at the line of its first entry
			if line, ok := at[k]; ok {
				return line
			}
		}
		key = key[:max(strings.LastIndexByte(key, '.'), 0)]
	}
	return 0
}
