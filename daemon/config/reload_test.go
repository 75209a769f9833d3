package config

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/cuda/mig"
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

// kept says that no model file is another one.
func kept(string) bool { return false }

func TestDiff(t *testing.T) {
	for name, test := range map[string]struct {
		change    func(c *Config)
		rewritten []string
		want      Reloaded
	}{
		"nothing": {change: func(*Config) {}},
		"order":   {change: func(c *Config) { slices.Reverse(c.Services) }},
		"added":   {change: func(c *Config) { *c = configOf("a", "x", "b", "c") }, want: Reloaded{Added: []string{"x"}}},
		"removed": {change: func(c *Config) { *c = configOf("c", "a") }, want: Reloaded{Removed: []string{"b"}}},
		"renamed": {change: func(c *Config) { c.Services[1].Name = "x" }, want: Reloaded{Added: []string{"x"}, Removed: []string{"b"}}},
		"target":  {change: func(c *Config) { c.Services[1].Target = time.Second }, want: Reloaded{Changed: []string{"b"}}},
		"model":   {change: func(c *Config) { c.Services[1].Model = "zoo:bert" }, want: Reloaded{Replaced: []string{"b"}}},
		"content": {change: func(*Config) {}, rewritten: []string{"c", "a"}, want: Reloaded{Replaced: []string{"a", "c"}}},
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
			got := Diff(old, next, func(s string) bool { return slices.Contains(test.rewritten, s) })
			if d := cmp.Diff(test.want, got); d != "" {
				t.Error(d)
			}
			if none := reflect.DeepEqual(test.want, Reloaded{}); got.None() != none {
				t.Errorf("None is %t", !none)
			}
		})
	}
}

// A divided GPU stays as it is; services come to and leave its instances.
func TestDiffOfInstances(t *testing.T) {
	on := func(c Config, places ...[]string) Config {
		for _, services := range places {
			c.MIG.Instances = append(c.MIG.Instances, mig.Want{Profile: "1g.10gb", Services: services})
		}
		return c
	}
	old := on(configOf("a", "b"), []string{"a"}, []string{"b"})
	same := on(configOf("b", "c"), nil, []string{"c", "b"})
	moved := on(configOf("a", "b", "c"), []string{"b"}, []string{"a", "c"})
	more := on(configOf("a", "b", "c"), []string{"a"}, []string{"b"}, []string{"c"})
	for name, test := range map[string]struct {
		next   Config
		want   Reloaded
		places [][]string // of the services afterwards
	}{
		"come and go": {same, Reloaded{Added: []string{"c"}, Removed: []string{"a"}}, [][]string{{}, {"b", "c"}}},
		"moved":       {moved, Reloaded{Added: []string{"c"}, Restart: []string{"mig.instance"}}, [][]string{{"a"}, {"b", "c"}}},
		"one more":    {more, Reloaded{Added: []string{"c"}, Restart: []string{"mig.instance"}}, [][]string{{"a"}, {"b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(test.want, Diff(old, test.next, kept)); d != "" {
				t.Error(d)
			}
			var places [][]string
			for _, i := range Applied(old, test.next).MIG.Instances {
				places = append(places, i.Services)
			}
			if d := cmp.Diff(test.places, places); d != "" {
				t.Error(d)
			}
		})
	}
}

// serviceEffects is what a change of each field of a service comes to. Who
// adds a field decides here what it does to a daemon that runs, and tells diff.
var serviceEffects = map[string]string{
	"Name": "added and removed", "Model": "replaced", "Threads": "replaced", "Cut": "replaced", "MPS": "replaced",
	"Target": "changed", "QueueLimit": "changed", "MaxBatch": "changed", "MaxQueryBatch": "changed", "BestEffort": "changed",
	"Sizes": "changed", "SeqLens": "changed",
}

func TestEveryFieldOfAServiceHasAnEffect(t *testing.T) {
	eachLeaf(reflect.TypeFor[Service](), nil, func(path []int, name string) {
		old, next := configOf("a"), configOf("a")
		mutate(t, reflect.ValueOf(&next.Services[0]).Elem().FieldByIndex(path))
		c := Diff(old, next, kept)
		got := map[[4]int]string{{1, 1, 0, 0}: "added and removed", {0, 0, 1, 0}: "replaced", {0, 0, 0, 1}: "changed"}[[4]int{
			len(c.Added), len(c.Removed), len(c.Replaced), len(c.Changed)}]
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
		c := Diff(old, next, kept)
		if len(c.Added)+len(c.Removed)+len(c.Replaced)+len(c.Changed) > 0 || len(c.Settings)+len(c.Restart) != 1 {
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
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()))
	default:
		t.Fatalf("no other value is known for a %s: add it here", v.Type())
	}
}

// anyConfig draws a configuration with some of five services, some of them on
// one of two instances, and a few settings.
func anyConfig(t *rapid.T, label string) Config {
	c := configOf()
	c.LogLevel = rapid.SampledFrom([]string{"debug", "info", "warn"}).Draw(t, label+" log level")
	c.DrainTimeout = time.Duration(rapid.IntRange(1, 3).Draw(t, label+" drain")) * time.Second
	c.Policy = rapid.SampledFrom([]string{"overlap", "edf", "fcfs"}).Draw(t, label+" policy")
	c.Worker.Threads = rapid.IntRange(0, 2).Draw(t, label+" threads")
	c.MIG.Instances = []mig.Want{{Profile: "1g.10gb"}, {Profile: "1g.10gb"}}
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 1, 5, rapid.ID).Draw(t, label+" services")
	for _, name := range names {
		s := DefaultService()
		s.Name = name
		s.Model = fmt.Sprintf("/m%d.onnx", rapid.IntRange(0, 1).Draw(t, name+" model"))
		s.Target = time.Duration(rapid.IntRange(1, 2).Draw(t, name+" target")) * time.Second
		c.Services = append(c.Services, s)
		at := &c.MIG.Instances[rapid.IntRange(0, 1).Draw(t, name+" place")]
		at.Services = append(at.Services, name)
	}
	return c
}

func TestDiffProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old, next := anyConfig(t, "old"), anyConfig(t, "next")
		if same := Diff(old, old, kept); !same.None() {
			t.Fatalf("a configuration differs from itself: %+v", same)
		}
		c := Diff(old, next, kept)
		list := slices.Concat(c.Added, c.Replaced, c.Changed, c.Removed)
		slices.Sort(list)
		if len(slices.Compact(list)) != len(c.Added)+len(c.Removed)+len(c.Replaced)+len(c.Changed) {
			t.Fatalf("a service is twice in %+v", c)
		}
		for _, name := range c.Added {
			if old.Service(name) != nil || next.Service(name) == nil {
				t.Fatalf("%s was added", name)
			}
		}
		for _, s := range next.Services {
			was := old.Service(s.Name)
			if same := was != nil && reflect.DeepEqual(*was, s); same == slices.Contains(slices.Concat(c.Added, c.Replaced, c.Changed), s.Name) {
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
	rest := Diff(now, next, kept)
	if len(rest.Added)+len(rest.Removed)+len(rest.Replaced)+len(rest.Changed)+len(rest.Settings) > 0 || !slices.Equal(rest.Restart, c.Restart) {
		t.Fatalf("after %+v there is left %+v", c, rest)
	}
	c.Restart = nil
	if d := cmp.Diff(c, Diff(old, now, kept)); d != "" {
		t.Fatal(d)
	}
}
