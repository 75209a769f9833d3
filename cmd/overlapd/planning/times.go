package planning

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/planning/selection"
)

// soloTime is what a batch of a service takes alone.
type soloTime struct {
	size, seqLen int
	ms           float64
}

// openProfile returns the device that a profile describes, as the emulated device and simulations read it.
func openProfile(path string) (*device.Model, error) {
	profile, err := device.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := device.NewModel(profile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// modelOf returns the position of a service's model on the device of a profile.
func modelOf(m *device.Model, path string, s *config.Service) (at int, err error) {
	if at = m.Index(strings.TrimPrefix(s.Model, config.EmulatedPrefix)); at < 0 {
		err = fmt.Errorf("%s does not know %q; name a model that it has (overlapd-lab device show)", path, s.Model)
	}
	return at, err
}

// profileTimes returns what each service takes alone on the device of a profile, with the longest
// sequences that it has.
func profileTimes(c *config.Config, path string) (times [][]soloTime, err error) {
	m, err := openProfile(path)
	if err != nil {
		return nil, err
	}
	for i := range c.Services {
		at, err := modelOf(m, path, &c.Services[i])
		if err != nil {
			return nil, fmt.Errorf("service %s: %w", c.Services[i].Name, err)
		}
		// Sizes that the device does not have are interpolated by those who need them.
		info, list := m.Models()[at], []soloTime(nil)
		seqLen := slices.Max(info.SeqLens)
		for _, size := range info.Sizes {
			took := m.Latency(models.Group{Spans: []models.Span{{Service: models.ServiceID(at), End: info.Operators, Size: size, SeqLen: seqLen}}})
			list = append(list, soloTime{size, seqLen, float64(took) / float64(time.Millisecond)})
		}
		times = append(times, list)
	}
	return times, nil
}

// longestSequence returns the longest that was measured. Plans count on it, since no one says how long
// sequences will be.
func longestSequence(times []soloTime) int {
	return slices.MaxFunc(times, func(a, b soloTime) int { return cmp.Compare(a.seqLen, b.seqLen) }).seqLen
}

// latencies returns what the longest sequences take, by batch.
func latencies(times []soloTime, maxBatch int) []float64 {
	longest := longestSequence(times)
	known := map[int]float64{}
	for _, t := range times {
		if t.seqLen == longest {
			known[t.size] = t.ms
		}
	}
	return selection.Interpolate(known, maxBatch, longestQueue)
}
