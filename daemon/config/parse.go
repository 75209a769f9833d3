package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	File    string // "" if it did not come from one
	Line    int    // 0 if it is not known
	Key     string // such as service[1].target
	Message string
}

func (f Fault) String() string {
	where := f.File
	if f.Line > 0 {
		where += ":" + strconv.Itoa(f.Line)
	}
	if where != "" {
		where += ": "
	}
	if f.Key != "" {
		where += f.Key + ": "
	}
	return where + f.Message
}

// Faults is the error of a configuration: everything that is wrong with it,
// in the order of the file.
type Faults []Fault

func (f Faults) Error() string {
	all := make([]string, len(f))
	for i := range f {
		all[i] = f[i].String()
	}
	return strings.Join(all, "\n")
}

// Load reads and checks the configuration file at path.
func Load(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return Config{}, err
	}
	return Parse(path, data)
}

// Parse reads and checks a configuration. The path is used in messages,
// and paths in it are relative to its folder. A Faults error reports
// everything that is wrong; only if the file is not TOML is there no more to
// say than that.
func Parse(path string, data []byte) (Config, error) {
	if len(data) > MaxBytes {
		return Config{}, Faults{{File: path, Message: fmt.Sprintf("the file exceeds %d bytes", MaxBytes)}}
	}
	var tree map[string]any
	if err := toml.Unmarshal(data, &tree); err != nil {
		return Config{}, Faults{syntaxFault(path, err)}
	}
	c := Default()
	r := &tomlReader{lines: findLines(data)}
	r.read("", tree, func(k keys) {
		c.keys(k)
		c.Services = r.services(k.(*tomlTable))
	})
	faults := append(r.faults, c.faults()...)
	for i := range faults {
		faults[i].File = path
		faults[i].Line = r.lines.of(faults[i].Key)
	}
	if len(faults) > 0 {
		slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
		return Config{}, faults
	}
	c.resolve(filepath.Dir(path))
	return c, nil
}

// resolve makes paths relative to where the daemon stands.
func (c *Config) resolve(dir string) {
	for i := range c.Services {
		s := &c.Services[i]
		if !strings.HasPrefix(s.Model, ZooPrefix) && !strings.HasPrefix(s.Model, EmulatedPrefix) && !filepath.IsAbs(s.Model) {
			s.Model = filepath.Join(dir, s.Model)
		}
	}
	c.Admin.resolve(dir)
	for _, f := range append(append(c.Tracing.files(), c.accessFiles()...), &c.Predictor.File, &c.DeviceProfile) {
		if *f != "" && !filepath.IsAbs(*f) {
			*f = filepath.Join(dir, *f)
		}
	}
}

func syntaxFault(path string, err error) Fault {
	f := Fault{File: path, Message: err.Error()}
	var d *toml.DecodeError
	if errors.As(err, &d) {
		f.Line, _ = d.Position()
		f.Key = strings.Join(d.Key(), ".")
	}
	return f
}

// of returns the line of a key, or that of the table it is missing from.
func (at lines) of(key string) int {
	for key != "" {
		if line, ok := at[key]; ok {
			return line
		}
		key = key[:max(strings.LastIndexByte(key, '.'), 0)]
	}
	return 0
}

// tomlReader reads tables, noting what is wrong.
type tomlReader struct {
	lines  lines
	faults Faults
}

// tomlTable is one table of the file. Keys are taken out as they are visited;
// what is left is unknown.
type tomlTable struct {
	r      *tomlReader
	prefix string
	tree   map[string]any
}

func (r *tomlReader) read(prefix string, tree map[string]any, visit func(keys)) {
	t := &tomlTable{r: r, prefix: prefix, tree: tree}
	visit(t)
	for key := range tree {
		t.fault(key, "this key is unknown")
	}
}

func (t *tomlTable) fault(key, format string, args ...any) {
	t.r.faults = append(t.r.faults, Fault{Key: t.prefix + key, Message: fmt.Sprintf(format, args...)})
}

// take returns the value of a key, if it has the type T.
func take[T any](t *tomlTable, key, what string) (T, bool) {
	v, ok := t.tree[key]
	delete(t.tree, key)
	typed, right := v.(T)
	if ok && !right {
		t.fault(key, "must be %s", what)
	}
	return typed, ok && right
}

func (t *tomlTable) text(key string, v *string) {
	if s, ok := take[string](t, key, "a string"); ok {
		*v = s
	}
}

func (t *tomlTable) flag(key string, v *bool) {
	if b, ok := take[bool](t, key, "true or false"); ok {
		*v = b
	}
}

func (t *tomlTable) number(key string, v *int) {
	if n, ok := take[int64](t, key, "an integer"); ok {
		*v = int(n)
	}
}

func (t *tomlTable) ratio(key string, v *float64) {
	if n, ok := t.tree[key].(int64); ok {
		delete(t.tree, key)
		*v = float64(n)
		return
	}
	if f, ok := take[float64](t, key, "a number from 0 to 1"); ok {
		*v = f
	}
}

func (t *tomlTable) texts(key string, v *[]string) {
	if list, ok := array[string](t, key, "an array of strings"); ok {
		*v = list
	}
}

func (t *tomlTable) numbers(key string, v *[]int) {
	list, ok := array[int64](t, key, "an array of integers")
	if !ok {
		return
	}
	*v = nil
	for _, n := range list {
		*v = append(*v, int(n))
	}
}

// array returns the value of a key, if it is an array of the type T.
func array[T any](t *tomlTable, key, what string) (typed []T, ok bool) {
	list, ok := take[[]any](t, key, what)
	for _, item := range list {
		v, right := item.(T)
		if !right {
			t.fault(key, "must be %s", what)
			return nil, false
		}
		typed = append(typed, v)
	}
	return typed, ok
}

func (t *tomlTable) duration(key string, v *time.Duration) {
	const want = `a string with a unit, such as "100ms" or "30s"`
	s, ok := take[string](t, key, want)
	if !ok {
		return
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.fault(key, "must be %s, not %q", want, s)
		return
	}
	*v = d
}

func (t *tomlTable) bytes(key string, v *int64) {
	const want = `a number of bytes, or a string such as "64MiB"`
	if n, ok := t.tree[key].(int64); ok {
		delete(t.tree, key)
		*v = n
		return
	}
	s, ok := take[string](t, key, want)
	if !ok {
		return
	}
	n, ok := parseBytes(s)
	if !ok {
		t.fault(key, "must be %s, not %q", want, s)
		return
	}
	*v = n
}

func (t *tomlTable) table(key string, visit func(keys)) {
	if tree, ok := take[map[string]any](t, key, "a table"); ok {
		t.r.read(t.prefix+key+".", tree, visit)
	}
}

func (t *tomlTable) tables(key string, _ int, room func(int) int, visit func(int, keys)) {
	name := t.prefix + key
	list, ok := take[[]any](t, key, "an array of tables: [["+name+"]]")
	if !ok {
		return
	}
	for i := range room(len(list)) {
		at := fmt.Sprintf("%s[%d]", key, i)
		if tree, ok := list[i].(map[string]any); ok {
			t.r.read(t.prefix+at+".", tree, func(k keys) { visit(i, k) })
		} else {
			t.fault(at, "must be a table")
		}
	}
}

// services reads the entries of [[service]].
func (r *tomlReader) services(t *tomlTable) []Service {
	list, ok := take[[]any](t, "service", "an array of tables: [[service]]")
	if !ok {
		return nil
	}
	if len(list) > MaxServices {
		t.fault("service", "%d services, the limit is %d", len(list), MaxServices)
		return nil
	}
	var all []Service
	for i, item := range list {
		key := fmt.Sprintf("service[%d]", i)
		tree, ok := item.(map[string]any)
		if !ok {
			t.fault(key, "must be a table")
			continue
		}
		s := DefaultService()
		r.read(key+".", tree, s.keys)
		all = append(all, s)
	}
	return all
}

// byteUnits are the units of byte counts, the largest first.
var byteUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// parseBytes reads a byte count such as "64MiB".
func parseBytes(s string) (int64, bool) {
	for _, u := range byteUnits {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/u.bytes {
			return 0, false
		}
		return n * u.bytes, true
	}
	return 0, false
}

// formatBytes writes a byte count in the largest unit that needs no fraction.
func formatBytes(n int64) string {
	for _, u := range byteUnits {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return "0B"
}
