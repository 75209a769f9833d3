package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// services returns a configuration with services of these names.
func configOf(names ...string) Config {
	c := Default()
	c.StateDir = "/state"
	for _, name := range names {
		s := DefaultService()
		s.Name, s.Model = name, "/models/"+name+".onnx"
		c.Services = append(c.Services, s)
	}
	return c
}

// kept says that no model file is another one, or that no service was given up.
func kept(string) bool { return false }

func TestDiff(t *testing.T) {
	for name, test := range map[string]struct {
		change    func(c *Config)
		rewritten []string
		givenUp   bool // a
		want      Reloaded
	}{
		"nothing":                    {change: func(*Config) {}},
		"order":                      {change: func(c *Config) { slices.Reverse(c.Services) }},
		"added":                      {change: func(c *Config) { *c = configOf("a", "x", "b", "c") }, want: Reloaded{Added: []string{"x"}}},
		"removed":                    {change: func(c *Config) { *c = configOf("c", "a") }, want: Reloaded{Removed: []string{"b"}}},
		"renamed":                    {change: func(c *Config) { c.Services[1].Name = "x" }, want: Reloaded{Added: []string{"x"}, Removed: []string{"b"}}},
		"target":                     {change: func(c *Config) { c.Services[1].Target = time.Second }, want: Reloaded{Changed: []string{"b"}}},
		"model":                      {change: func(c *Config) { c.Services[1].Model = "zoo:bert" }, want: Reloaded{Replaced: []string{"b"}}},
		"content":                    {change: func(*Config) {}, rewritten: []string{"c", "a"}, want: Reloaded{Replaced: []string{"a", "c"}}},
		"given up":                   {change: func(*Config) {}, givenUp: true, want: Reloaded{Retried: []string{"a"}}},
		"given up and another model": {change: func(c *Config) { c.Services[0].Model = "zoo:bert" }, givenUp: true, want: Reloaded{Replaced: []string{"a"}}},
		"sizes that were meant": {change: func(c *Config) {
			c.Services[0].Sizes = []int{1, 2, 4}
		}},
		"a model and a target": {change: func(c *Config) {
			c.Services[2].Model, c.Services[2].Target = "/other.onnx", time.Second
		}, want: Reloaded{Replaced: []string{"c"}}},
		"outside": {change: func(c *Config) {
			c.LogLevel, c.Policy, c.Limits.Connections, c.DrainTimeout, c.MPS.Mode = "warn", "edf", 7, time.Hour, MPSOff
		}, want: Reloaded{Settings: []string{"drain_timeout", "log_level"}, Restart: []string{"policy", "limits.connections", "mps.mode"}}},
	} {
		t.Run(name, func(t *testing.T) {
			old, next := configOf("a", "b", "c"), configOf("a", "b", "c")
			test.change(&next)
			got := Diff(old, next, func(s string) bool { return slices.Contains(test.rewritten, s) }, func(s string) bool { return s == "a" && test.givenUp })
			if d := cmp.Diff(test.want, got); d != "" {
				t.Error(d)
			}
			if none := reflect.DeepEqual(test.want, Reloaded{}); got.None() != none {
				t.Errorf("None is %t", !none)
			}
		})
	}
}

// The devices stay as they are; services come to and leave them.
func TestDiffOfDevices(t *testing.T) {
	of := func(devices string, on ...string) Config { // such as "a:xy", of devices with names of one letter
		c := configOf()
		for _, name := range devices {
			c.Devices = append(c.Devices, Device{Name: string(name), Kind: DeviceEmulated})
		}
		for _, text := range on {
			name, where, _ := strings.Cut(text, ":")
			s := configOf(name).Services[0]
			for _, at := range where {
				s.On = append(s.On, string(at))
			}
			c.Services = append(c.Services, s)
		}
		return c
	}
	other := of("xy", "a:x", "b:y")
	other.Services[0].Target, other.Services[0].On = time.Second, nil
	another := of("xy", "a:x", "b:y")
	another.Services[1].Threads, another.Services[1].On = 7, nil
	one := configOf("a", "b")
	one.Device = DeviceCPU
	for name, test := range map[string]struct {
		next Config
		want Reloaded
		on   string // by index in the pool, of each service afterwards
	}{
		"come and go":            {of("xy", "b:y", "c:x"), Reloaded{Added: []string{"c"}, Removed: []string{"a"}}, "[1] [0]"},
		"moved":                  {of("xy", "a:y", "b:y"), Reloaded{Moved: []string{"a"}}, "[1] [1]"},
		"one more, by default":   {of("xy", "a:", "b:y"), Reloaded{Moved: []string{"a"}}, "[0 1] [1]"},
		"in another order":       {of("xy", "a:yx", "b:y"), Reloaded{Moved: []string{"a"}}, "[0 1] [1]"},
		"moved and changed":      {other, Reloaded{Moved: []string{"a"}}, "[0 1] [1]"},
		"moved and replaced":     {another, Reloaded{Replaced: []string{"b"}}, "[0] [0 1]"},
		"another device":         {of("xyz", "a:xz", "b:y"), Reloaded{Restart: []string{"device"}}, "[0] [1]"},
		"to another device":      {of("xyz", "a:z", "b:y"), Reloaded{Restart: []string{"device"}}, "[0] [1]"},
		"a new one on a new one": {of("xyz", "a:x", "b:y", "c:z"), Reloaded{Added: []string{"c"}, Restart: []string{"device"}}, "[0] [1] []"},
		"one device":             {one, Reloaded{Moved: []string{"a", "b"}, Restart: []string{"device"}}, "[0 1] [0 1]"},
	} {
		t.Run(name, func(t *testing.T) {
			old := of("xy", "a:x", "b:y")
			if d := cmp.Diff(test.want, Diff(old, test.next, kept, kept)); d != "" {
				t.Error(d)
			}
			applied := Applied(old, test.next)
			var on []string
			for _, name := range applied.Names() {
				on = append(on, fmt.Sprint(applied.On(name)))
			}
			if got := strings.Join(on, " "); got != test.on {
				t.Errorf("they are on %s, want %s", got, test.on)
			}
		})
	}
}

// serviceEffects is what a change of each field of a service comes to. Who
// adds a field decides here what it does to a daemon that runs, and tells diff.
var serviceEffects = map[string]string{
	"Name": "added and removed", "Model": "replaced", "Threads": "replaced", "Cut": "replaced", "MPS": "replaced", "OpLibraries": "replaced",
	"Target": "changed", "Keep": "changed", "On": "moved", "QueueLimit": "changed", "MaxBatch": "changed", "MaxQueryBatch": "changed", "BestEffort": "changed",
	"Sizes": "changed", "SeqLens": "changed", "Selection": "changed", "Variants": "replaced", "Planned": "changed",
	"Tokenizer": "changed", "Pooling": "changed", "Normalize": "changed", "Text": "changed", "Version": "changed",
}

func TestEveryFieldOfAServiceHasAnEffect(t *testing.T) {
	eachLeaf(reflect.TypeFor[Service](), nil, func(path []int, name string) {
		old, next := configOf("a"), configOf("a")
		old.Devices = []Device{{Name: ""}, {Name: "other"}} // the empty name is what a list is mutated by
		next.Devices = old.Devices
		mutate(t, reflect.ValueOf(&next.Services[0]).Elem().FieldByIndex(path))
		c := Diff(old, next, kept, kept)
		got := map[[5]int]string{{1, 1}: "added and removed", {0, 0, 1}: "replaced", {0, 0, 0, 1}: "moved", {0, 0, 0, 0, 1}: "changed"}[[5]int{
			len(c.Added), len(c.Removed), len(c.Replaced), len(c.Moved), len(c.Changed)}]
		top := reflect.TypeFor[Service]().Field(path[0]).Name
		if want := serviceEffects[top]; want == "" || got != want {
			t.Errorf("ServiceConfig.%s: diff says %q, serviceEffects %q; a new field needs an entry there, "+
				"and the tag reload:worker if its worker was started with it", name, got, want)
		}
	})
}

func TestEveryOtherFieldHasAnEffect(t *testing.T) {
	seen := 0
	eachLeaf(reflect.TypeFor[Config](), nil, func(path []int, name string) {
		if name == "Services" {
			return
		}
		seen++
		old, next := configOf("a"), configOf("a")
		mutate(t, reflect.ValueOf(&next).Elem().FieldByIndex(path))
		c := Diff(old, next, kept, kept)
		if len(c.Added)+len(c.Removed)+len(c.Replaced)+len(c.Moved)+len(c.Changed) > 0 || len(c.Settings)+len(c.Restart) != 1 {
			t.Errorf("Config.%s: diff says %+v; a field is a key by its tags", name, c)
			return
		}
	})
	if seen < 50 {
		t.Errorf("only %d fields were looked at", seen)
	}
}

// eachLeaf visits the fields that hold no struct of this package.
func eachLeaf(of reflect.Type, path []int, visit func(path []int, name string)) {
	for i := range of.NumField() {
		f, at := of.Field(i), append(slices.Clone(path), i)
		if f.Type.Kind() == reflect.Struct {
			eachLeaf(f.Type, at, func(path []int, name string) { visit(path, f.Name+"."+name) })
			continue
		}
		visit(at, f.Name)
	}
}

// mutate gives a field another value.
func mutate(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "-other")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()))
	default:
		t.Fatalf("no other value is known for a %s: add it here", v.Type())
	}
}

// anyConfig draws a configuration with some of five services, some of them on
// some of two or three devices, and a few settings.
func anyConfig(t *rapid.T, label string) Config {
	c := configOf()
	c.LogLevel = rapid.SampledFrom([]string{"debug", "info", "warn"}).Draw(t, label+" log level")
	c.DrainTimeout = time.Duration(rapid.IntRange(1, 3).Draw(t, label+" drain")) * time.Second
	c.Policy = rapid.SampledFrom([]string{"overlap", "edf", "fcfs"}).Draw(t, label+" policy")
	c.Worker.Threads = rapid.IntRange(0, 2).Draw(t, label+" threads")
	c.Devices = []Device{{Name: "x", Kind: DeviceEmulated}, {Name: "y", Kind: DeviceEmulated}, {Name: "z", Kind: DeviceEmulated}}[:rapid.IntRange(2, 3).Draw(t, label+" devices")]
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 1, 5, rapid.ID).Draw(t, label+" services")
	for _, name := range names {
		s := DefaultService()
		s.Name = name
		s.Model = fmt.Sprintf("/m%d.onnx", rapid.IntRange(0, 1).Draw(t, name+" model"))
		s.Target = time.Duration(rapid.IntRange(1, 2).Draw(t, name+" target")) * time.Second
		s.On = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y", "z"}[:len(c.Devices)]), 0, 2, rapid.ID).Draw(t, name+" on")
		c.Services = append(c.Services, s)
	}
	return c
}

func TestDiffProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old, next := anyConfig(t, "old"), anyConfig(t, "next")
		if same := Diff(old, old, kept, kept); !same.None() {
			t.Fatalf("a configuration differs from itself: %+v", same)
		}
		c := Diff(old, next, kept, kept)
		list := slices.Concat(c.Added, c.Replaced, c.Moved, c.Changed, c.Removed)
		slices.Sort(list)
		if len(slices.Compact(list)) != len(c.Added)+len(c.Removed)+len(c.Replaced)+len(c.Moved)+len(c.Changed) {
			t.Fatalf("a service is twice in %+v", c)
		}
		for _, name := range c.Added {
			if old.Service(name) != nil || next.Service(name) == nil {
				t.Fatalf("%s was added", name)
			}
		}
		for _, s := range next.Services {
			was, now := old.Service(s.Name), Applied(old, next)
			same := was != nil && slices.Equal(old.On(s.Name), now.On(s.Name))
			if was != nil {
				s.On = was.On
			}
			same = same && reflect.DeepEqual(*was, s)
			if same == slices.Contains(slices.Concat(c.Added, c.Replaced, c.Moved, c.Changed), s.Name) {
				t.Fatalf("%s is the same: %t, but the changes are %+v", s.Name, same, c)
			}
		}
		checkApplied(t, old, next, c)
	})
}

// checkApplied checks that what holds after a reload differs from the old
// configuration by what took effect, and from the new one by the rest.
func checkApplied(t *rapid.T, old, next Config, c Reloaded) {
	now := Applied(old, next)
	rest := Diff(now, next, kept, kept)
	if len(rest.Added)+len(rest.Removed)+len(rest.Replaced)+len(rest.Moved)+len(rest.Changed)+len(rest.Settings) > 0 || !slices.Equal(rest.Restart, c.Restart) {
		t.Fatalf("after %+v there is left %+v", c, rest)
	}
	c.Restart = nil
	if d := cmp.Diff(c, Diff(old, now, kept, kept)); d != "" {
		t.Fatal(d)
	}
}
