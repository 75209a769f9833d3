package planning

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overlapd/overlapd/training/advice"
)

// takeValues reads a flag with a value for each of some services. A value that is wrong is told before a
// name that is.
func takeValues(list []advice.Service, flag, form, example string, values []string, take func(s *advice.Service, value string) bool) error {
	for _, text := range values {
		name, value, _ := strings.Cut(text, "=")
		i := slices.IndexFunc(list, func(s advice.Service) bool { return s.Name == name })
		to := new(advice.Service) // so that the value of an unknown name is read, too
		if i >= 0 {
			to = &list[i]
		}
		switch {
		case !take(to, value):
			return fmt.Errorf("--%s %s: write %s, such as %s=%s", flag, text, form, name, example)
		case i < 0:
			return fmt.Errorf("--%s %s: there is no service %q", flag, text, name)
		}
	}
	return nil
}

// takeTargets reads --targets.
func takeTargets(list []advice.Service, targets []string) error {
	return takeValues(list, "targets", "NAME=DURATION", "75ms", targets, func(s *advice.Service, value string) (ok bool) {
		lasts, err := time.ParseDuration(value)
		s.Target = lasts
		return err == nil && lasts > 0
	})
}

// takeLoads reads --load.
func takeLoads(list []advice.Service, loads []string) error {
	return takeValues(list, "load", "NAME=QPS", "20", loads, func(s *advice.Service, value string) bool { return positive(value, &s.QPS) })
}

// positive reads a number from 0. A load of 0 is allowed: the service is there, and nobody asks.
func positive(text string, to *float64) bool {
	v, err := strconv.ParseFloat(text, 64)
	*to = v
	return err == nil && v >= 0 && !math.IsInf(v, 0)
}
