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

	"github.com/overlapd/overlapd/planning"
	"github.com/overlapd/overlapd/textfile"
)

// Load reads and checks the configuration file at path, and the plan that it names, by
// which services are put on devices.
func Load(path string) (Config, error) {
	data, err := textfile.ReadRegular(path, maxBytes)
	if err != nil && len(data) <= maxBytes { // Parse refuses what is larger
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
			"%v --config %s --out %s, or leave it out: services are then wherever there is room", err, path, c.Plan)}}.in(path, data)
	}
	if f := pipelineFaults(c.Policy, c.Services); len(f) > 0 {
		return Config{}, f.in(path, data)
	}
	return c, nil
}

// in adds to faults where they are in a file, and sorts them by that.
func (f Faults) in(path string, data []byte) Faults {
	at := findLines(data)
	for i := range f {
		f[i].File, f[i].Line = path, at.of(f[i].Key)
	}
	slices.SortStableFunc(f, func(a, b complaint) int { return cmp.Compare(a.Line, b.Line) })
	return f
}

// Parse reads and checks a configuration. The path is used in messages, and
// paths in it are relative to its folder. A Faults error reports everything that
// is wrong; only if the file is not TOML is there no more to say than that.
func Parse(path string, data []byte) (Config, error) {
	if len(data) > maxBytes {
		return Config{}, Faults{{File: path, Message: fmt.Sprintf("the file exceeds %d bytes", maxBytes)}}
	}
	var tree map[string]any
	if err := toml.Unmarshal(data, &tree); err != nil {
		f := complaint{File: path, Message: err.Error()}
		if d, ok := errors.AsType[*toml.DecodeError](err); ok {
			f.Line, _ = d.Position()
			f.Key = strings.Join(d.Key(), ".")
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
	return c, nil
}

// resolve makes relative paths those of files below dir.
func (c *Config) resolve(dir string) {
	in := func(path *string) {
		if *path != "" && !filepath.IsAbs(*path) && !IsURL(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
	c.keys(func(k key) {
		if k.tag.Get("path") != "" {
			in(k.value.Addr().Interface().(*string))
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

// read takes the keys of a file into the configuration, and returns what is wrong with
// them. Keys are taken out of their tables as they are found; what is left is unknown.
func (c *Config) read(file map[string]any) (f Faults) {
	tables := map[string]map[string]any{"": file} // by the prefix of their keys
	var known []string
	c.keys(func(k key) {
		dot := strings.LastIndexByte(k.name, '.') + 1
		prefix, name := k.name[:dot], k.name[dot:]
		known = append(known, k.name, strings.TrimSuffix(prefix, "."))
		table, ok := tables[prefix]
		if !ok { // else it is an entry of an array
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
			f.add(prefix+name, "this key is unknown%s", Guess(prefix, name, known))
		}
	}
	return f
}

// readTables makes the entries of an array of tables, for their keys to be read.
func (f *Faults) readTables(k key, v any, tables map[string]map[string]any) {
	list, ok := v.([]any)
	most, _ := strconv.Atoi(k.tag.Get("max"))
	if f.when(!ok, k.name, "must be an array of tables: [[%s]]", entryNumber.ReplaceAllString(k.name, "")) ||
		f.when(len(list) > most, k.name, "%d entries, the limit is %d", len(list), most) {
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

// lines has the line of a TOML file on which each key stands. Keys are written
// with dots, entries of an array of tables with their number: service[1].name.
type lines map[string]int

// findLines reads a file that is known to be TOML.
func findLines(data []byte) lines {
	at := lines{}
	arrays := map[string]int{} // how many entries each array of tables has
	var p unstable.Parser
	p.Reset(data)
	prefix := ""
	for p.NextExpression() {
		node := p.Expression()
		switch node.Kind {
		case unstable.Table, unstable.ArrayTable:
			key, line := joinKey(&p, "", node.Key())
			if of, name, inside := strings.Cut(key, "."); inside && arrays[of] > 0 { // it is of the latest entry
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

// keyValue enters a key, and those of a table written inline.
func (at lines) keyValue(p *unstable.Parser, prefix string, node *unstable.Node) {
	key, line := joinKey(p, prefix, node.Key())
	at[key] = line
	at.inside(p, key, node.Value())
}

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

func joinKey(p *unstable.Parser, prefix string, parts unstable.Iterator) (key string, line int) {
	var names []string
	for parts.Next() {
		names = append(names, string(parts.Node().Data))
		line = p.Shape(parts.Node().Raw).Start.Line
	}
	return prefix + strings.Join(names, "."), line
}

// of returns the line of a key, or that of the table it is missing from.
func (at lines) of(key string) int {
	for key != "" {
		for _, k := range []string{key, key + "[0]"} { // of an array of tables, that of the first
			if line, ok := at[k]; ok {
				return line
			}
		}
		key = key[:max(strings.LastIndexByte(key, '.'), 0)]
	}
	return 0
}
