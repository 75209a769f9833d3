package planning

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/stats"
	"github.com/overlapd/overlapd/textfile"
)

// Limits of a file of services, and of what its columns hold.
const (
	maxStreams = 10_000_000
	maxNumber  = 1e12
	maxBatch   = 128 // Shepherd's, where the target does not limit a batch
)

var (
	errServices   = errors.New("unusable services")
	servicesSheet = textfile.Sheet{
		Form:     "a header line with the columns model, alpha_ms and beta_ms, and perhaps slo_ms, rate, memory_mib, working_mib and gpu",
		MaxRows:  maxStreams,
		Unusable: errServices,
		TooLarge: errServices,
	}
)

// ReadServices reads a CSV file with a row for each stream of requests, and aggregates
// the streams of one model into one service (Shepherd, section 4: a model-stream), in the
// order of their first rows. The columns are model (or name), alpha_ms and beta_ms, and
// perhaps slo_ms (or slo), without which no target limits a batch, rate, without which
// each stream has one request a second, and memory_mib (or memory) and working_mib,
// without which they are zero. If gpu is not empty, only rows with it in the column gpu
// count. Where services are known, rows are of these, and say what is known otherwise or
// not; those without a row have no requests. Without a file each has one a second.
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
			t.Refuse(model, "the configuration has no service of this name; name one that it has")
			return
		}
		s.Alpha, s.Beta, s.Rate = number(alpha, epsilon, s.Alpha), number(beta, 0, s.Beta), number(rate, 0, 1)
		s.Memory, s.Working = number(memory, 0, s.Memory), number(working, 0, s.Working)
		target := number(slo, 0, cmp.Or(s.Target, infinite))
		if known != nil && slo >= 0 {
			s.Target = target
		}
		if s.Alpha+s.Beta > target {
			t.Refuse(max(slo, 0), "model %.40q takes %s ms for one request alone; give a larger target or a faster device", s.Name, stats.Digits(3, s.Alpha+s.Beta))
			return
		}
		if err := s.load(target); err != nil {
			t.Fault("%w", err)
			return
		}
		streams++
		at, known := position[s.Name]
		if !known {
			s.Name = strings.Clone(s.Name) // of the line, which need not stay in memory
			position[s.Name] = len(services)
			services = append(services, s)
			return
		}
		first := &services[at]
		if first.Alpha != s.Alpha || first.Beta != s.Beta || first.Memory != s.Memory || first.Working != s.Working {
			t.Fault("model %.40q has other times or memory than in a row before; keep one profile of each model, or say which GPU's", s.Name)
		}
		first.Rate += s.Rate
		first.Load += s.Load
	})
	if err == nil && len(services) == 0 {
		err = &textfile.Fault{File: path, Err: errors.New("no row has " + gpu + " in its column gpu; name another GPU")}
	}
	for _, k := range known {
		if _, there := position[k.Name]; !there {
			services = append(services, k)
		}
	}
	return services, streams, err
}

// load calculates the load of the service by its rate.
func (s *Service) load(target float64) error {
	if s.Alpha == 0 {
		return fmt.Errorf("%w: nobody knows how long service %s takes; give alpha_ms and beta_ms, or measure it (overlapd profile)", errServices, s.Name)
	}
	s.Load = s.Rate / throughput(s.Alpha, s.Beta, target, cmp.Or(s.MaxBatch, maxBatch))
	return nil
}

// throughput returns the most requests a second that one device of speed 1 answers in
// time: with the largest batch of which two fit the target, the one that runs and the
// one that waits for it, or with one request at a time.
func throughput(alpha, beta, target float64, most int) float64 {
	batch := min(max(math.Floor((target/2-beta)/alpha), 1), float64(most))
	return 1000 * batch / (alpha*batch + beta)
}
