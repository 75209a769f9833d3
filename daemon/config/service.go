package config

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overlapd/overlapd/planning"
	"github.com/overlapd/overlapd/text/export"
)

// Service is one service. A service with variants has no model of its own:
// [Config.Expanded] has one service for each.
type Service struct {
	// Clients ask for the service under this name: letters, digits, dots, underscores and
	// hyphens.
	Name string `toml:"name" missing:"required" reload:"name"`
	// Services may share a name if their versions differ; a request that names no version
	// reaches the highest.
	Version int `toml:"version" default:"1" min:"1"`
	// The model is "zoo:NAME", an ONNX file or, on an emulated device, "emulated:NAME";
	// variants have their own.
	Model string `toml:"model" reload:"worker" missing:"required"`
	// The service has a worker on each of these devices; without it the plan decides, else all
	// with room.
	On []string `toml:"on" reload:"replicas"`
	// The service promises to answer within this time; a request may ask for less.
	Target time.Duration `toml:"target" default:"100ms"`
	// This many queries may wait; further ones are refused.
	QueueLimit int `toml:"queue_limit" default:"256" min:"1" max:"1048576"`
	// Queries are merged into batches of up to this size; 1 turns that off.
	MaxBatch int `toml:"max_batch" default:"1" min:"1" max:"4096"`
	// The batch dimension of one query may be this large.
	MaxQueryBatch int `toml:"max_query_batch" default:"64" min:"1" max:"4096"`
	// Its workers have this many intra-op threads; 0 takes worker.threads.
	Threads int `toml:"threads" default:"0" min:"0" max:"1024" reload:"worker"`

	// The model is cut into this many operators; 0 is one per node or, on a GPU, chosen by
	// measuring; -1 is one per node.
	Cut int `toml:"cut" default:"0" min:"-1" max:"1048576" reload:"worker"`
	// Its queries only fill headroom that no other service needs.
	BestEffort bool `toml:"best_effort"`
	// With another load than start, its model is loaded at the start all the same, and stays.
	Keep bool `toml:"keep"`
	// These batch sizes are measured; without it 1 and its doubles up to max_batch, or 4 if that
	// is more.
	Sizes []int `toml:"sizes"`
	// These sequence lengths are measured, if the model has one.
	SeqLens []int `toml:"seq_lens" default:"[16, 64]"`

	// These shared libraries have the custom operators of the model; its workers run their code.
	OpLibraries []string `toml:"op_libraries" path:"file" reload:"worker"`

	// Text becomes tokens by this file in Hugging Face's format; without it, by the
	// tokenizer.json next to the model, if there is one.
	Tokenizer string `toml:"tokenizer" path:"file"`
	// Embeddings are the mean, first or last of the tokens' vectors, or the model's own output
	// (none); auto follows the exported files, else mean.
	Pooling string `toml:"pooling" default:"auto" oneof:"auto,mean,cls,last,none"`
	// Embeddings are scaled to length 1; auto follows modules.json next to the model, else yes.
	Normalize string `toml:"normalize" default:"auto" oneof:"auto,yes,no"`

	// Variants are chosen by this policy file; without it, by a policy that the daemon
	// computes.
	Selection string `toml:"selection" path:"file"`

	// MPS is what the service may take of a GPU that it shares.
	MPS struct {
		// The service may use this percentage of the GPU's multiprocessors under MPS; 0 is all
		// of them.
		Percentage int `toml:"active_thread_percentage" default:"0" min:"0" max:"100" gpu:"share" reload:"worker"`
		// The service may take this much GPU memory under MPS; 0 is no limit.
		PinnedMemory int64 `toml:"pinned_memory_limit" default:"0B" min:"1MiB" zero:"all" gpu:"only" reload:"worker"`
		// This hint tells MPS whose kernels go first.
		Priority string `toml:"client_priority" default:"normal" oneof:"normal,below_normal" gpu:"only" reload:"worker"`
	}

	Variants []Variant `toml:"variant" max:"16"` // a table inside this one, so it comes last

	// Planned is what the plan says of the service if it has pipelines, nil if not. It is no
	// key: the file names the plan.
	Planned *planning.Service

	// Text is what the daemon has read of the tokenizer and the files next to it, nil without a
	// tokenizer. It is no key.
	Text *export.Text
}

// Variant is one of several models that can answer the queries of a service. [Variant.called]
// returns its name.
type Variant struct {
	// Clients and messages use this name, in the form of the name of a service.
	Name string `toml:"name" missing:"the last part of model" reload:"name"`
	// The variant runs this model, in the form of the model of a service.
	Model string `toml:"model" reload:"worker" missing:"required"`
	// The accuracy is a percentage, or any number above 0 where more is better; no two variants
	// share one.
	Accuracy float64 `toml:"accuracy" missing:"required"`
}

// called returns the name of a variant: its own, or else the last element of its model,
// without the extension of a file.
func (v *Variant) called() string {
	switch _, name, prefixed := strings.Cut(v.Model, ":"); {
	case v.Name != "":
		return v.Name
	case prefixed && !IsPath(v.Model):
		return name
	}
	name := filepath.Base(v.Model)
	return strings.TrimSuffix(name, filepath.Ext(name))
}

// Models returns the models of a service: those of its variants, or its own.
func (s *Service) Models() (all []string) {
	for _, v := range s.Variants {
		all = append(all, v.Model)
	}
	if len(s.Variants) == 0 {
		all = append(all, s.Model)
	}
	return all
}

// variantOf separates service and variant in the name of an expanded service. It is not
// allowed in the names of services in a file.
const variantOf = "/"

// versionOf separates a name and a version in the name of a service. It is not allowed in
// the names of services in a file.
const versionOf = ":"

// Base returns the name that s shares with its other versions.
func (s *Service) Base() string { return strings.TrimSuffix(s.Name, s.suffix()) }

// suffix returns what the name of s ends with while a higher version has the plain one.
func (s *Service) suffix() string { return versionOf + strconv.Itoa(s.Version) }

// Versioned returns services with unique names: of those that share a name, the highest
// version keeps it, and the others are NAME:VERSION. Services of [Config.Expanded] already
// have such names.
func Versioned(services []Service) []Service {
	highest := map[string]int{}
	for i := range services {
		s := &services[i]
		highest[s.Base()] = max(highest[s.Base()], s.Version)
	}
	services = slices.Clone(services)
	for i := range services {
		s := &services[i]
		if s.Name = s.Base(); s.Version < highest[s.Name] {
			s.Name += s.suffix()
		}
	}
	return services
}

// Of returns the service that s is a variant of, and the variant, or "" and nil. Only a
// service of [Config.Expanded] can be a variant.
func (s *Service) Of() (service string, v *Variant) {
	service, _, is := strings.Cut(s.Name, variantOf)
	if !is || len(s.Variants) != 1 {
		return "", nil
	}
	return service, &s.Variants[0]
}

// expanded expands services, see [Config.Expanded].
func expanded(services []Service) (all []Service) {
	for _, s := range services {
		if of, _ := s.Of(); of != "" || len(s.Variants) == 0 {
			all = append(all, s)
			continue
		}
		for _, v := range s.Variants {
			one := s
			v.Name = v.called()
			one.Name, one.Model, one.Variants = s.Name+variantOf+v.Name, v.Model, []Variant{v}
			all = append(all, one)
		}
	}
	return all
}

// folded is the inverse of expanded. Services that are not expanded stay as they are.
func folded(services []Service) (all []Service) {
	for _, s := range services {
		of, v := s.Of()
		last := len(all) - 1
		switch {
		case v == nil:
			all = append(all, s)
		case last >= 0 && all[last].Name == of:
			all[last].Variants = append(slices.Clip(all[last].Variants), *v)
		default:
			s.Name, s.Model = of, ""
			all = append(all, s)
		}
	}
	return all
}

// DefaultService returns a service that only lacks its name and model.
func DefaultService() Service {
	var s Service
	setDefaults(&s)
	return s
}

// MeasuredSizes returns the batch sizes to measure: the configured ones, or powers of two
// up to the largest batch that is formed, and at least up to 4, because clients may send
// batches of their own.
func (s *Service) MeasuredSizes() []int {
	if len(s.Sizes) > 0 {
		return s.Sizes
	}
	const least = 4
	var sizes []int
	most := max(s.MaxBatch, min(least, s.MaxQueryBatch))
	for n := 1; n < most; n *= 2 {
		sizes = append(sizes, n)
	}
	return append(sizes, most)
}

// IsPath reports whether a model is a file, which somebody may replace, rather than a model
// of the zoo or of an emulated device.
func IsPath(model string) bool {
	return !strings.HasPrefix(model, ZooPrefix) && !strings.HasPrefix(model, EmulatedPrefix)
}
