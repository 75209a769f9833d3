package config

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of keys into the documentation")

// maxWords is how long the sentence of a key may be. Details go below the tables.
const maxWords = 25

// TestSentences: each key has one sentence above its field.
func TestSentences(t *testing.T) {
	for _, e := range reference() {
		words := len(strings.Fields(e.Meaning))
		if words == 0 || words > maxWords || !strings.HasSuffix(e.Meaning, ".") || strings.Contains(e.Meaning, ". ") {
			t.Errorf("%s: the comment above its field must be one sentence of at most %d words, not %d: %q", e.Key, maxWords, words, e.Meaning)
		}
	}
}

// block is where a page has the keys of some tables, such as [limits] [tls].
var block = regexp.MustCompile(`(?s)<!-- keys: (.*?) -->\n(.*?)<!-- /keys -->\n`)

// aboveTables is the title of the block of the keys that are in no table.
const aboveTables = "above all tables"

// listed returns the keys of tables as a page has them.
func listed(tables []string) string {
	var b strings.Builder
	b.WriteString("| key | type | default | meaning |\n|---|---|---|---|\n")
	for _, e := range reference() {
		if !slices.Contains(tables, e.table()) {
			continue
		}
		fallback := e.Missing
		if fallback == "" {
			fallback = "`" + string(e.Default) + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", e.Key, e.Type, fallback, e.Meaning)
	}
	return b.String()
}

// TestReference holds the tables that people read to the declarations, and each table to one
// page; with -update it writes them.
func TestReference(t *testing.T) {
	missing := map[string]bool{}
	for _, e := range reference() {
		missing[e.table()] = true
	}
	for _, page := range []string{"../../docs/configuration.md", "../../docs/tracing.md"} {
		have, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		want := block.ReplaceAllStringFunc(string(have), func(text string) string {
			title := block.FindStringSubmatch(text)[1]
			tables := []string{""}
			if title != aboveTables {
				tables = strings.Split(strings.Trim(title, "[]"), "] [")
			}
			for _, name := range tables {
				if !missing[name] {
					t.Errorf("%s has a block for the keys of %q, which is no table or has one already", page, name)
				}
				delete(missing, name)
			}
			return "<!-- keys: " + title + " -->\n" + listed(tables) + "<!-- /keys -->\n"
		})
		switch {
		case string(have) == want:
		case *update:
			if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s does not have the keys as they are declared: go generate ./daemon/config", page)
		}
	}
	for name := range missing {
		t.Errorf("no page has a block for the keys of %q, such as <!-- keys: [limits] -->", name)
	}
}

func TestExplain(t *testing.T) {
	c, err := Parse("overlapd.toml", []byte(`
[limits]
memory_bytes = "1GiB"
[[device]]
name = "left"
kind = "cpu"
[[service]]
name = "text"
model = "zoo:bert"
target = "200ms"
[[service]]
name = "image"
[[service.variant]]
model = "zoo:resnet50"
accuracy = 76.13
[[service.variant]]
model = "zoo:resnet152"
accuracy = 78.31
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, want string }{
		{"limits.memory_bytes", `limits.memory_bytes size "512MiB" restart "1GiB"`},
		{"memory_bytes", `limits.memory_bytes size "512MiB" restart "1GiB"`},
		{"service.target", `service.target duration "100ms" now text="200ms" image="100ms"`},
		{"service.threads", `service.threads integer, 0 to 1024 0 worker text=0 image=0`},
		{"on", `service.on list of strings [] replicas text=[] image=[]`},
		{"accuracy", `service.variant.accuracy number required now image/resnet50=76.13 image/resnet152=78.31`},
		{"log_level", `log_level "trace", "debug", "info", "warn", "error" "info" now "info"`},
		{"device", `device "auto", "cpu", "cuda", "emulated" "auto" restart`}, // the pool is in effect
		{"cores", `device.cores string "" restart left=""`},
		{"metrics", `metrics boolean true restart true`}, // and not that of [access]
		{"[mig]", `mig.owner boolean false restart false`},
		{"cuda.memory_limit", `cuda.memory_limit size, 0 or at least 1MiB "0B" restart "0B"`},
	} {
		all, err := Explain(test.name, &c)
		if err != nil || len(all) != 1 {
			t.Errorf("%s: %d keys, %v", test.name, len(all), err)
			continue
		}
		e := all[0]
		fallback := e.Missing
		if fallback == "" {
			fallback = string(e.Default)
		}
		got := []string{e.Key, e.Type, fallback, e.Reload}
		for _, v := range e.InEffect {
			got = append(got, strings.TrimPrefix(v.Of+"="+string(v.Value), "="))
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	for table, keys := range map[string]int{"[access]": 2, "access": 2, "[device]": 6, "service.variant": 3, "mps": 3} {
		if all, err := Explain(table, nil); err != nil || len(all) != keys || all[0].InEffect != nil {
			t.Errorf("%s: %v, %v", table, all, err)
		}
	}
	if all, err := Explain("", &c); err != nil || len(all) != len(reference()) {
		t.Errorf("all keys: %d, %v", len(all), err)
	}
	for name, want := range map[string]string{
		"limits.memory_byte": "the key limits.memory_byte is unknown, did you mean limits.memory_bytes?",
		"memorybytes":        "the key memorybytes is unknown, did you mean limits.memory_bytes?",
		"limit.connections":  "did you mean limits.connections?",
		"[workers]":          "did you mean [worker]?",
		"xyzzy":              "the key xyzzy is unknown: overlapd check prints all keys",
		"[]":                 "the key [] is unknown",
		"threads":            "threads is a key of several tables: name one of worker.threads, service.threads",
	} {
		if _, err := Explain(name, &c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}
