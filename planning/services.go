package planning

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/internal/textfile"
)

// Limits of a file of services, and of its columns. maxBatch limits a batch if no target does; it
// is Shepherd's.
const (
	maxStreams = 10_000_000
	maxNumber  = 1e12
	maxBatch   = 128
)

// servicesSheet is the format of a file of services, and errServices is wrapped by errors about
// one.
var (
	errServices   = errors.New("unusable services")
	servicesSheet = textfile.Sheet{
		Form:     "a header line with the columns model, alpha_ms and beta_ms, and perhaps slo_ms, rate, memory_mib, working_mib and gpu",
		MaxRows:  maxStreams,
		Unusable: errServices,
		TooLarge: errServices,
	}
)

// ReadServices reads a CSV file with a row for each stream of requests. It aggregates the streams
// of one model into one service (a model-stream, Shepherd, section 4), in the order of their first
// rows.
//
// The columns model (or name), alpha_ms and beta_ms are required. Without slo_ms (or slo) no target
// limits a batch. Without rate each stream has one request a second. Without memory_mib (or memory)
// or working_mib these are 0. If gpu is not empty, only the rows with this value in the column gpu
// count.
//
// If known is not nil, rows must be of known services and override what is known of them. Known
// services without a row have no requests. Without a file each known service has one request a
// second.
func ReadServices(path, gpu string, known []Service) (services []Service, streams int, err error) {
	if path == "" {
		for i := range known {
			known[i].Rate = 1
			err = errors.Join(err, known[i].load(cmp.Or(known[i].Target, infinite)))
		}
		return known, len(known), err
	}
	var model, alpha, beta, slo, rate, memory, working, gpus int
	head := func(t *textfile.Table) {
		model, alpha, beta = t.Require("model", "name"), t.Column("alpha_ms"), t.Column("beta_ms")
		if known == nil {
			alpha, beta = t.Require("alpha_ms"), t.Require("beta_ms")
		}
		slo, rate, memory, working = t.Column("slo_ms", "slo"), t.Column("rate"), t.Column("memory_mib", "memory"), t.Column("working_mib")
		if gpu != "" {
			gpus = t.Require("gpu")
		}
	}
	position := map[string]int{}
	err = servicesSheet.ReadFile(path, head, func(t *textfile.Table) {
		if gpu != "" && t.Fields[gpus] != gpu {
			return
		}
		number := func(column int, least, otherwise float64) float64 {
			if column < 0 {
				return otherwise
			}
			return t.Number(column, least, maxNumber)
		}
		s := Service{Name: t.Fields[model]}
		if i := slices.IndexFunc(known, func(k Service) bool { return k.Name == s.Name }); i >= 0 {
			s = known[i]
		} else if known != nil {
			t.Refuse(model, "the configuration has no service with this name; name one that it has")
			return
		}
		s.Alpha, s.Beta, s.Rate = number(alpha, epsilon, s.Alpha), number(beta, 0, s.Beta), number(rate, 0, 1)
		s.Memory, s.Working = number(memory, 0, s.Memory), number(working, 0, s.Working)
		target := number(slo, 0, cmp.Or(s.Target, infinite))
		if known != nil && slo >= 0 {
			s.Target = target
		}
		if s.Alpha+s.Beta > target {
			t.Refuse(max(slo, 0), "model %.40q takes %s ms for a single request; give a larger target or a faster device", s.Name, stats.Digits(3, s.Alpha+s.Beta))
			return
		}
		if err := s.load(target); err != nil {
			t.Fault("%w", err)
			return
		}
		streams++
		// Further streams of a model add to its service, if they have the same profile.
		at, known := position[s.Name]
		if !known {
			// The clone does not keep the whole line in memory.
			s.Name = strings.Clone(s.Name)
			position[s.Name] = len(services)
			services = append(services, s)
			return
		}
		first := &services[at]
		if first.Alpha != s.Alpha || first.Beta != s.Beta || first.Memory != s.Memory || first.Working != s.Working {
			t.Fault("model %.40q has other times or memory than in an earlier row; keep one profile for each model, or select a GPU", s.Name)
		}
		first.Rate += s.Rate
		first.Load += s.Load
	})
	if err == nil && len(services) == 0 {
		err = &textfile.Fault{File: path, Err: errors.New("no row has " + gpu + " in its column gpu; name another GPU")}
	}
	// Known services without a row follow last.
	for _, k := range known {
		if _, there := position[k.Name]; !there {
			services = append(services, k)
		}
	}
	return services, streams, err
}

// load computes the load of the service from its rate.
func (s *Service) load(target float64) error {
	if s.Alpha == 0 {
		return fmt.Errorf("%w: the latency of service %s is unknown; give alpha_ms and beta_ms, or measure it (overlapd profile)", errServices, s.Name)
	}
	s.Load = s.Rate / throughput(s.Alpha, s.Beta, target, cmp.Or(s.MaxBatch, maxBatch))
	return nil
}

// throughput returns the highest rate in requests a second that one device of speed 1 answers in
// time. The batch is the largest of which two fit within the target, one running and one waiting,
// or else a single request.
func throughput(alpha, beta, target float64, most int) float64 {
	batch := min(max(math.Floor((target/2-beta)/alpha), 1), float64(most))
	return 1000 * batch / (alpha*batch + beta)
}
