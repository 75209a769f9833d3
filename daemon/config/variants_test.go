package config

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const variantsConfig = `[[service]]
name = "other"
model = "zoo:bert"

[[service]]
name = "classifier"
target = "200ms"
max_batch = 8
selection = "classifier.policy"

[[service.variant]]
model = "zoo:resnet50"
accuracy = 76

[[service.variant]]
model = "models/slow.v2.onnx"
accuracy = 78.31

[[service]]
name = "last"
model = "zoo:bert"
`

func parsed(t *testing.T, file string) Config {
	t.Helper()
	c, err := Parse("/etc/overlapd.toml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A service with variants is read as it stands, is run as one service for each, and is
// written as it was, also by a daemon that runs it.
func TestVariants(t *testing.T) {
	c := parsed(t, variantsConfig)
	want := []Variant{{Model: "zoo:resnet50", Accuracy: 76}, {Model: "/etc/models/slow.v2.onnx", Accuracy: 78.31}}
	if d := cmp.Diff(want, c.Services[1].Variants); d != "" || c.Services[1].Selection != "/etc/classifier.policy" {
		t.Error(d, c.Services[1].Selection)
	}
	run := c.Expanded()
	if got := strings.Join(run.Names(), " "); got != "other classifier/resnet50 classifier/slow.v2 last" {
		t.Fatal(got)
	}
	s := run.Services[2]
	if of, v := s.Of(); of != "classifier" || *v != (Variant{"slow.v2", "/etc/models/slow.v2.onnx", 78.31}) || s.Model != v.Model {
		t.Error(of, v, s.Model)
	}
	if s.Target != 200*time.Millisecond || s.MaxBatch != 8 || s.Selection != "/etc/classifier.policy" || len(s.Variants) != 1 {
		t.Errorf("%+v", s)
	}
	if of, v := run.Services[0].Of(); of != "" || v != nil {
		t.Error("a service with one model is a variant of", of)
	}
	if d := cmp.Diff(run, run.Expanded()); d != "" {
		t.Error("expanded again:", d)
	}
	if d := cmp.Diff(want, c.Services[1].Variants); d != "" {
		t.Error("expanding has changed what was expanded:", d)
	}
	named := parsed(t, string(run.TOML())) // with the names that they have
	if d := cmp.Diff(run, named.Expanded()); d != "" {
		t.Error(d)
	}
	for _, text := range [][]byte{c.TOML(), c.BriefTOML()} {
		if again := parsed(t, string(text)); !bytes.Equal(again.TOML(), c.TOML()) {
			t.Errorf("what is printed is read as something else:\n%s", text)
		}
	}
}

func TestVariantFaults(t *testing.T) {
	variant := func(lines ...string) string { return "[[service.variant]]\n" + strings.Join(lines, "\n") + "\n" }
	const service, path, good = "[[service]]\nname = \"a\"\n", `model = "/m/x.onnx"`, `accuracy = 7`
	first := service + variant(path, "accuracy = 5")
	for name, tt := range map[string]struct {
		file string
		want []string
	}{
		"a model, too":           {service + path + "\n" + variant(path, good) + variant(`model = "y"`, "accuracy = 2"), []string{"c.toml:3: service[0].model: the service has variants, each with its own model: leave out model, or every [[service.variant]]"}},
		"one":                    {first, []string{`c.toml:3: service[0].variant: is the only one, so there is no choice: add a second variant, or replace it with model = "/m/x.onnx"`}},
		"no accuracy":            {first + variant(`model = "y"`), []string{"c.toml:6: service[0].variant[1].accuracy: must be above 0 and at most 1e+12, such as the percentage of correct answers, not 0"}},
		"negative":               {first + variant(`model = "y"`, "accuracy = -1"), []string{"c.toml:8: service[0].variant[1].accuracy: must be above 0 and at most 1e+12"}},
		"not a number":           {first + variant(`model = "y"`, "accuracy = nan"), []string{"c.toml:8: service[0].variant[1].accuracy: must be above 0 and at most 1e+12, such as the percentage of correct answers, not NaN"}},
		"infinite":               {first + variant(`model = "y"`, "accuracy = inf"), []string{"c.toml:8: service[0].variant[1].accuracy: must be above 0 and at most 1e+12"}},
		"a text":                 {first + variant(`model = "y"`, `accuracy = "76 %"`), []string{"c.toml:8: service[0].variant[1].accuracy: must be a number", "c.toml:8: service[0].variant[1].accuracy: must be above 0 and at most "}},
		"equal":                  {first + variant(`model = "y"`, "accuracy = 5.0"), []string{"c.toml:8: service[0].variant[1].accuracy: is 5, the same as that of variant[0] (x): only the faster of the two would ever run; leave the other out, or correct one"}},
		"one name, of models":    {first + variant(`model = "/n/x.onnx"`, good), []string{`c.toml:6: service[0].variant[1].name: "x" is also the name of variant[0]: choose another name`}},
		"one name, given":        {first + variant(`name = "x"`, `model = "y"`, good), []string{`c.toml:7: service[0].variant[1].name: "x" is also the name of variant[0]: choose another name`}},
		"a name with a slash":    {first + variant(`name = "a/b"`, `model = "y"`, good), []string{`c.toml:7: service[0].variant[1].name: "a/b" must be 1 to 128 letters`}},
		"a name of no letters":   {first + variant(`model = "/m/ü v2.onnx"`, good), []string{`c.toml:6: service[0].variant[1].name: "ü v2" must be 1 to 128 letters`}},
		"no model":               {first + variant(good), []string{`c.toml:6: service[0].variant[1].model: must be "zoo:NAME" or the path of an ONNX file`}},
		"not in the zoo":         {first + variant(`model = "zoo:x2"`, good), []string{`c.toml:7: service[0].variant[1].model: "zoo:x2" is not in the zoo`}},
		"emulated":               {first + variant(`model = "emulated:b"`, good), []string{`c.toml:7: service[0].variant[1].model: "emulated:b" needs device = "emulated"`}},
		"best effort":            {service + "best_effort = true\n" + variant(path, good) + variant(`model = "y"`, "accuracy = 2"), []string{"c.toml:3: service[0].best_effort: variants are chosen by the time until the deadline, and these queries have none: leave it out, or give the service one model"}},
		"a policy for one":       {minimalConfig + `selection = "p"`, []string{"c.toml:4: service[0].selection: chooses among variants, but there is no [[service.variant]]: leave it out, or give the service variants"}},
		"an unknown key":         {first + variant(`model = "y"`, good, "acuracy = 5"), []string{"c.toml:9: service[0].variant[1].acuracy: unknown key; did you mean accuracy?"}},
		"no table":               {service + "variant = 1\n" + path, []string{"c.toml:3: service[0].variant: must be an array of tables: [[service.variant]]"}},
		"one table":              {service + path + "\n[service.variant]\naccuracy = 2\n", []string{"c.toml:4: service[0].variant: must be an array of tables: [[service.variant]]"}},
		"too many":               {service + path + "\n" + strings.Repeat(variant(), 17), []string{"c.toml:4: service[0].variant: has 17 entries, and the limit is 16"}},
		"a service with a slash": {"[[service]]\nname = \"a/b\"\n" + variant(path, good) + variant(`model = "y"`, "accuracy = 2"), []string{`c.toml:2: service[0].name: "a/b" must be 1 to 128 letters`}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, f := range faultsOf(t, tt.file, len(tt.want)) {
				if !strings.HasPrefix(f.text(), tt.want[i]) {
					t.Errorf("%s, want %s", f.text(), tt.want[i])
				}
			}
		})
	}
	many := ""
	for i := range 33 {
		many += fmt.Sprintf("[[service]]\nname = \"s%d\"\n", i) + variant(path, good) + variant(`model = "y"`, "accuracy = 2")
	}
	if got := faultsOf(t, many, 1)[0].text(); !strings.Contains(got, "service: 66 services whose models stay in memory, counting each variant, and the limit is 64: leave some out") {
		t.Error(got)
	}
}

// What a reload does with variants: an accuracy and a policy need no worker, a model does,
// and variants come and go as services.
func TestDiffOfVariants(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(s *Service)
		want   Reloaded
	}{
		"nothing":  {func(*Service) {}, Reloaded{}},
		"accuracy": {func(s *Service) { s.Variants[0].Accuracy = math.Pi }, Reloaded{Changed: []string{"classifier/resnet50"}}},
		"named":    {func(s *Service) { s.Variants[0].Name = "resnet50" }, Reloaded{}},
		"policy":   {func(s *Service) { s.Selection = "/p" }, Reloaded{Changed: []string{"classifier/resnet50", "classifier/slow.v2"}}},
		"model":    {func(s *Service) { s.Variants[1].Name, s.Variants[1].Model = "slow.v2", "zoo:resnet152" }, Reloaded{Replaced: []string{"classifier/slow.v2"}}},
		"one more": {func(s *Service) { s.Variants = append(s.Variants, Variant{"", "zoo:vgg16", 1}) }, Reloaded{Added: []string{"classifier/vgg16"}}},
		"another":  {func(s *Service) { s.Variants[1].Model = "zoo:vgg16" }, Reloaded{Removed: []string{"classifier/slow.v2"}, Added: []string{"classifier/vgg16"}}},
		"only a model": {func(s *Service) { s.Model, s.Variants, s.Selection = "zoo:resnet50", nil, "" }, Reloaded{
			Removed: []string{"classifier/resnet50", "classifier/slow.v2"}, Added: []string{"classifier"}}},
	} {
		t.Run(name, func(t *testing.T) {
			old, next := parsed(t, variantsConfig), parsed(t, variantsConfig)
			tt.change(&next.Services[1])
			if err := next.Validate(); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, Diff(old.Expanded(), next.Expanded(), kept, kept)); d != "" {
				t.Error(d)
			}
		})
	}
}
