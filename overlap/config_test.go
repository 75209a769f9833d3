package overlap

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

func goodConfig(services int) Config {
	c := &costs{}
	config := Config{Policy: "fcfs", Devices: []Predictor{c}, MaxRetries: 1}
	for i := range services {
		c.add(time.Millisecond, 10)
		config.Services = append(config.Services, models.Service{
			ID: models.ServiceID(i), Name: string(rune('a' + i)), Operators: 10,
			QoSTarget: time.Second, QueueLimit: 100, MaxBatch: 4,
		})
	}
	return config
}

func TestConfigReportsEveryFault(t *testing.T) {
	if _, err := New(goodConfig(3)); err != nil {
		t.Fatal(err)
	}
	faults := map[string]func(*Config){
		"0 services":                    func(c *Config) { c.Services = nil },
		"16385 services":                func(c *Config) { c.Services = make([]models.Service, MaxServices+1) },
		`unknown policy "best"`:         func(c *Config) { c.Policy = "best" },
		"a device without a predictor":  func(c *Config) { c.Devices[0] = nil },
		"-1 ways":                       func(c *Config) { c.Ways = -1 },
		"65 ways":                       func(c *Config) { c.Ways = MaxWays + 1 },
		"max retries -1":                func(c *Config) { c.MaxRetries = -1 },
		"max retries 17":                func(c *Config) { c.MaxRetries = MaxMaxRetries + 1 },
		"ID 7 is not its position":      func(c *Config) { c.Services[1].ID = 7 },
		"no name":                       func(c *Config) { c.Services[1].Name = "" },
		"service 1 (b): 0 operators":    func(c *Config) { c.Services[1].Operators = 0 },
		"service 1 (b): QoS target 0s":  func(c *Config) { c.Services[1].QoSTarget = 0 },
		"service 1 (b): queue limit 0":  func(c *Config) { c.Services[1].QueueLimit = 0 },
		"service 1 (b): max batch -1":   func(c *Config) { c.Services[1].MaxBatch = -1 },
		"service 1 (b): max batch 9999": func(c *Config) { c.Services[1].MaxBatch = 9999 },
	}
	for want, fault := range faults {
		c := goodConfig(2)
		fault(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	c := goodConfig(2)
	c.Policy, c.Devices[0], c.Services[0].Operators, c.Services[1].QueueLimit = "", nil, -1, MaxQueueLimit+1
	err := c.Validate()
	if n := strings.Count(err.Error(), "\n") + 1; n != 4 {
		t.Errorf("%d faults, want 4:\n%v", n, err)
	}
}

func TestPoliciesAreDescribed(t *testing.T) {
	for _, info := range Policies() {
		c := goodConfig(1)
		c.Policy = info.Name
		if _, err := New(c); err != nil {
			t.Error(err)
		}
		if !strings.HasSuffix(info.Summary, ".") {
			t.Errorf("%s: %q is no sentence", info.Name, info.Summary)
		}
	}
}

func TestQueueFullError(t *testing.T) {
	c := goodConfig(1)
	c.Services[0].QueueLimit = 1
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for id := range models.QueryID(2) {
		err = s.Arrive(0, models.Query{ID: id, Size: 1, Deadline: time.Hour})
	}
	if !errors.Is(err, ErrQueueFull) || !strings.Contains(err.Error(), "service a: queue is full: 1 queries wait") {
		t.Errorf("%v", err)
	}
}

func TestReasonNames(t *testing.T) {
	seen := map[string]bool{}
	for r := range ReasonCount {
		if name := r.String(); name == "" || seen[name] || strings.ToLower(name) != name || strings.Contains(name, " ") {
			t.Errorf("reason %d is named %q", r, name)
		}
		seen[r.String()] = true
	}
}
