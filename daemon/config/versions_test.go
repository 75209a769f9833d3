package config

import (
	"strings"
	"testing"
)

// versioned returns a file of services, each NAME or NAME VERSION.
func versioned(services ...string) []byte {
	var b strings.Builder
	for _, s := range services {
		name, version, is := strings.Cut(s, " ")
		b.WriteString("[[service]]\nname = \"" + name + "\"\nmodel = \"zoo:resnet50\"\n")
		if is {
			b.WriteString("version = " + version + "\n")
		}
	}
	return []byte(b.String())
}

// namesOf returns the names of the services as they run.
func namesOf(c Config) string {
	c = c.Expanded()
	return strings.Join(c.Names(), " ")
}

// The highest version has the plain name, whatever the order, and a file has the name of all.
func TestVersionsOfAService(t *testing.T) {
	for services, want := range map[string]string{
		"a":                  "a",
		"a 7":                "a",
		"a 7,b,a 12,a":       "a:7 b a a:1",
		"a 2,a 3,a-1,b 2,b":  "a:2 a a-1 b b:1",
		"a 9007199254740991": "a",
	} {
		c, err := Parse("c.toml", versioned(strings.Split(services, ",")...))
		if err != nil {
			t.Fatalf("parsing %s: %v", services, err)
		}
		for range 3 {
			if got := strings.Join(c.Names(), " "); got != want {
				t.Errorf("%s: got the names %s, want %s", services, got, want)
			}
			if err := c.Validate(); err != nil {
				t.Errorf("%s: got the fault %v", services, err)
			}
			text := c.TOML()
			if strings.Contains(string(text), `name = "a:`) {
				t.Errorf("%s: the file has the name of a version:\n%s", services, text)
			}
			if c, err = Parse("c.toml", text); err != nil {
				t.Fatalf("parsing %s again: %v", services, err)
			}
			c = c.Expanded()
		}
	}
	for services, want := range map[string]string{
		"a,a 1":     `c.toml:5: service[1].name: "a" is also the name of service[0]: choose another name, or another version`,
		"a 2,b,a 2": `service[2].name: "a" is also the name of service[0]`,
		"a 0":       "service[0].version: must be in [1, ",
		"a -1":      "service[0].version: must be in [1, ",
		"a:1 2":     `service[0].name: "a:1" must be 1 to 128 letters`,
		"stats 2":   "is reserved",
	} {
		if _, err := Parse("c.toml", versioned(strings.Split(services, ",")...)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", services, err, want)
		}
	}
}

// Versions have variants of their own.
func TestVersionsWithVariants(t *testing.T) {
	const variants = "[[service.variant]]\nmodel = \"zoo:resnet50\"\naccuracy = 1\n[[service.variant]]\nmodel = \"zoo:resnet101\"\naccuracy = 2\n"
	file := "[[service]]\nname = \"a\"\n" + variants + "[[service]]\nname = \"a\"\nversion = 2\n" + variants
	c, err := Parse("c.toml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	if got := namesOf(c); got != "a:1/resnet50 a:1/resnet101 a/resnet50 a/resnet101" {
		t.Errorf("got the names %s", got)
	}
	again, err := Parse("c.toml", c.Expanded().TOML())
	if err != nil || namesOf(again) != namesOf(c) {
		t.Errorf("again: got %v, %v", namesOf(again), err)
	}
}
