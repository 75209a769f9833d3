package triton

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Every field that is not declared is reported, with its line, as deep as what holds it
// is declared.
func TestUndeclaredFields(t *testing.T) {
	c, others, _, err := parse([]byte("first: 1\nname: \"m\"\ninput { name: \"x\"\n second: [1, 2] }\nthird { name: \"y\" fourth: 1 }\ninstance_group <\nfirst: 2 fifth < a: b > >"))
	if err != nil || c.Name != "m" || c.Input[0].Name != "x" || len(c.InstanceGroup) != 1 {
		t.Errorf("%v, %v", c, err)
	}
	if got := fmt.Sprint(others); got != "[{first 1} {second 4} {third 5} {fifth 7}]" {
		t.Error(got)
	}
}

// However many fields there are, reading ends, and soon.
func TestTooManyUndeclaredFields(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "a%d: 1\n", i)
	}
	if _, others, _, err := parse([]byte(b.String())); err == nil || len(others) != maxUndeclared {
		t.Errorf("%d fields, %v", len(others), err)
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"", ports, "max_batch_size: 8 dynamic_batching { }", "a: 1 b { c: [d] } [e.f]: 1 7: 8",
		`parameters { key: "a" value: { string_value: "b" } } parameters: { key: "a" }`,
		"version_policy { specific { versions: [1, 2] } }", "version_policy { all {} latest {} }",
		`instance_group [ { kind: KIND_CPU count: 2 }, < gpus: 1 > ]`, strings.Repeat("a{", 100), "name: 'm' 'n' # c",
		`input { name: "input" data_type: 11 dims: [-1, 16] }`,
	} {
		f.Add([]byte(seed))
	}
	dir := one(f, "")
	f.Fuzz(func(t *testing.T, text []byte) {
		c, others, line, err := parse(text)
		lines := strings.Split(string(text), "\n")
		for _, field := range others {
			if field.line < 1 || field.line > len(lines) || !strings.Contains(lines[field.line-1], field.name) {
				t.Fatalf("%+v is not there", field)
			}
		}
		if err != nil {
			if line < 0 || line > len(lines) {
				t.Fatalf("line %d: %v", line, err)
			}
			return
		}
		r, err := openRepository(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer r.root.Close()
		m := model{repository: r, name: "m", c: c}
		if m.translate(others) == nil && (len(m.services) == 0 || m.services[0].Model == "") {
			t.Fatal("a service without a model")
		}
		if m.service.Target < 0 || m.service.Target > 366*24*time.Hour {
			t.Fatalf("target %v", m.service.Target)
		}
	})
}
