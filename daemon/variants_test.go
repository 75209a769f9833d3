package daemon

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/daemon/config"
)

// variantsConfig is one service with both models of the formula as its variants.
func variantsConfig(t *testing.T) config.Config {
	return emulatedConfig(t, func(c *config.Config) {
		c.Services = c.Services[:1]
		s := &c.Services[0]
		s.Name, s.Variants, s.Model = "s", []config.Variant{{Model: "emulated:first", Accuracy: 70}, {Name: "twin", Model: "emulated:first", Accuracy: 80}}, ""
	})
}

// A daemon runs a service for each variant. A reload takes another accuracy without a
// worker, and variants come and go as services; what holds is written as a file has it.
func TestVariantsAreServices(t *testing.T) {
	c := variantsConfig(t)
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	d := serveEmulated(t, c)
	names := func() string { now := d.Config(); return strings.Join(now.Names(), " ") }
	if names() != "s/first s/twin" {
		t.Fatal(names())
	}
	reload := func(change func(s *config.Service)) config.Reloaded {
		t.Helper()
		s := c.Services[0]
		s.Variants = append([]config.Variant(nil), s.Variants...)
		change(&s)
		c.Services = []config.Service{s}
		done, err := d.Reload(context.Background(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		done.Took, done.Failed = 0, nil
		return *done
	}
	for _, tt := range []struct {
		name   string
		change func(s *config.Service)
		want   config.Reloaded
		names  string
	}{
		{"another accuracy", func(s *config.Service) { s.Variants[1].Accuracy = 90 }, config.Reloaded{Changed: []string{"s/twin"}}, "s/first s/twin"},
		{"one more", func(s *config.Service) {
			s.Variants = append(s.Variants, config.Variant{Name: "third", Model: "emulated:first", Accuracy: 60})
		}, config.Reloaded{Added: []string{"s/third"}}, "s/first s/twin s/third"},
		{"one less", func(s *config.Service) { s.Variants = s.Variants[1:] }, config.Reloaded{Removed: []string{"s/first"}}, "s/twin s/third"},
	} {
		if got := reload(tt.change); cmp.Diff(tt.want, got) != "" || names() != tt.names {
			t.Errorf("%s: %+v, %s", tt.name, got, names())
		}
	}
}
