package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

var coded = regexp.MustCompile("`(.*?)`")

// documented is one key of the tables in the documentation.
type documented struct{ name, fallback string }

func readDocs(t *testing.T, paths ...string) (all []documented) {
	t.Helper()
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		inside := false
		for line := range strings.Lines(string(text)) {
			cells := strings.Split(line, "|")
			if inside = len(cells) > 3 && (inside || strings.HasPrefix(line, "| key | default |")); !inside {
				continue
			}
			names, defaults := coded.FindAllStringSubmatch(cells[1], -1), coded.FindAllStringSubmatch(cells[2], -1)
			for i := range names {
				d := documented{name: names[i][1]}
				if len(defaults) > 0 {
					d.fallback = strings.Trim(defaults[min(i, len(defaults)-1)][1], `"`)
				}
				all = append(all, d)
			}
		}
	}
	return all
}

// Each key stands in the documentation with the default that is declared, and
// nothing stands there that is no key.
func TestKeysAreDocumented(t *testing.T) {
	docs := readDocs(t, "../../docs/configuration.md", "../../docs/tracing.md")
	left := map[documented]bool{}
	for _, d := range docs {
		left[d] = true
	}
	c := Config{Services: []Service{{Variants: make([]Variant, 1)}}, Devices: make([]Device, 1)}
	c.keys(func(k key) {
		if k.isTables() {
			return
		}
		short := k.name[strings.LastIndexByte(k.name, '.')+1:]
		for _, d := range docs {
			if d.name != short && d.name != k.name {
				continue
			}
			want, declared := k.tag.Lookup("default")
			same := short == "state_dir" || d.fallback == want || !declared && (d.fallback == "" || d.fallback == format(reflect.Zero(k.value.Type())))
			if declared && !same {
				same = reflect.DeepEqual(k.declared(d.fallback).Interface(), k.declared(want).Interface())
			}
			if same {
				delete(left, d)
				return
			}
		}
		t.Errorf("%s is not in docs/configuration.md with its default %q", k.name, k.tag.Get("default"))
	})
	for d := range left {
		t.Errorf("docs/configuration.md has %s with the default %q, which is no key", d.name, d.fallback)
	}
}
