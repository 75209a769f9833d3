package overlap

import (
	"errors"
	"slices"
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
		"16385 services":                func(c *Config) { c.Services = make([]models.Service, MaxServices+1) },
		`unknown policy "best"`:         func(c *Config) { c.Policy = "best" },
		"a device without a predictor":  func(c *Config) { c.Devices[0] = nil },
		"-1 ways":                       func(c *Config) { c.Ways = -1 },
		"65 ways":                       func(c *Config) { c.Ways = maxWays + 1 },
		"max retries -1":                func(c *Config) { c.MaxRetries = -1 },
		"max retries 17":                func(c *Config) { c.MaxRetries = maxMaxRetries + 1 },
		"ID 7 is not its position":      func(c *Config) { c.Services[1].ID = 7 },
		"no name":                       func(c *Config) { c.Services[1].Name = "" },
		"service 1 (b): 0 operators":    func(c *Config) { c.Services[1].Operators = 0 },
		"service 1 (b): QoS target 0s":  func(c *Config) { c.Services[1].QoSTarget = 0 },
		"service 1 (b): queue limit 0":  func(c *Config) { c.Services[1].QueueLimit = 0 },
		"service 1 (b): max batch -1":   func(c *Config) { c.Services[1].MaxBatch = -1 },
		"service 1 (b): max batch 9999": func(c *Config) { c.Services[1].MaxBatch = 9999 },

		"links of 2 devices: want one for each of 1": func(c *Config) { c.Links = []int{0, 0} },
		"alone of 2 devices: want one for each of 1": func(c *Config) { c.Alone = []bool{true, false} },
		"device 0 has link -1":                       func(c *Config) { c.Links = []int{-1} },
		"service 1 (b): pipeline 0: batch 0":         func(c *Config) { pipe(c).Batch = 0 },
		"pipeline 0: 0 stages":                       func(c *Config) { pipe(c).Stages = nil },
		"stage 1 ends before operator 4: want more than 4": func(c *Config) {
			pipe(c).Stages[1].End = 4
		},
		"its last stage ends before operator 9: want 10": func(c *Config) { pipe(c).Stages[1].End = 9 },
		"stage 0: a move of -1ns":                        func(c *Config) { pipe(c).Stages[0].Move = -1 },
		"stage 1 has no device":                          func(c *Config) { pipe(c).Stages[1].Devices = nil },
		"stage 1 on device 1: the pool has 0 to 0":       func(c *Config) { pipe(c).Stages[1].Devices[0] = 1 },
		"stage 0 has device 0 twice":                     func(c *Config) { pipe(c).Stages[0].Devices = []int{0, 0} },
		"best effort reserves nothing":                   func(c *Config) { pipe(c); c.Services[1].BestEffort = true },
	}
	for want, fault := range faults {
		c := goodConfig(2)
		fault(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	c := goodConfig(2)
	c.Policy, c.Devices[0], c.Services[0].Operators, c.Services[1].QueueLimit = "", nil, -1, maxQueueLimit+1
	err := c.Validate()
	if n := strings.Count(err.Error(), "\n") + 1; n != 4 {
		t.Errorf("%d faults, want 4:\n%v", n, err)
	}
}

// pipe gives the second service a pipeline, and returns it.
func pipe(c *Config) *models.Pipeline {
	c.Services[1].Pipelines = []models.Pipeline{{Batch: 4, Stages: []models.Stage{
		{End: 4, Devices: []int{0}, Move: time.Millisecond}, {End: 10, Devices: []int{0}},
	}}}
	return &c.Services[1].Pipelines[0]
}

// What a pipeline cannot be is refused wherever a service is defined, and nothing changes.
func TestPipelinesAreRefused(t *testing.T) {
	c := goodConfig(2)
	pipe(&c)
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	s.down(0, 1, 0)
	m := c.Services[1]
	m.Operators = 12
	if err := s.load(0, m); err == nil || !strings.Contains(err.Error(), "make the plan anew") {
		t.Errorf("a model with more operators: %v", err)
	}
	m.Pipelines = []models.Pipeline{{Batch: 4, Stages: []models.Stage{{End: 12, Devices: []int{0}}}}}
	if err := s.load(0, m); err != nil {
		t.Errorf("with pipelines for them: %v", err)
	}
	m.Pipelines = []models.Pipeline{{Batch: 4, Stages: []models.Stage{{End: 12, Devices: []int{1}}}}}
	if err := s.change(0, m); !errors.Is(err, ErrBadService) {
		t.Errorf("a pipeline over a device that is not there: %v", err)
	}
	if got := s.backlog.services[1].Pipelines[0].Stages[0]; got.End != 12 || got.Devices[0] != 0 {
		t.Errorf("it has %+v", got)
	}
}

func TestPoliciesAreDescribed(t *testing.T) {
	for _, info := range slices.Concat(Policies(), Comparisons()) {
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
		err = s.arrive(0, models.Query{ID: id, Size: 1, Deadline: time.Hour})
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
