package residency

import (
	"fmt"
	"math"
	"time"

	"github.com/overlapd/overlapd/internal/report"
)

const (
	// pictureSteps is how many pieces the time of a picture has: half an hour of a day.
	pictureSteps = 48

	// pictureModels is how many models a picture shows at most, since each has a row.
	pictureModels = 40

	// grain is to what parts of the time are rounded, so that more neighbours are alike.
	grain = 0.1

	// rowUsed is the part of a row that boxes take.
	rowUsed = 0.9
)

// Picture draws when models are in memory, a row for each and a colour for each policy. The height of a
// box is the part of the time in which the model was there. Names have the violations and the loads.
func Picture(sc Scenario, policies []string) (*report.Chart, error) {
	if sc.Models > pictureModels {
		return nil, fmt.Errorf("a picture of %d models: it has rows for %d, give fewer --models", sc.Models, pictureModels)
	}
	c := &report.Chart{X: "hours", Y: "model, 1 is the most popular"}
	for n, name := range policies {
		// The result is that of the picture, so that it can be told what the difference is worth.
		p := presence{sc: sc, since: make([]time.Duration, sc.Models), parts: make([][pictureSteps]float64, sc.Models)}
		result, err := simulate(sc, name, p.change)
		if err != nil {
			return nil, err
		}
		s := report.Series{Name: fmt.Sprintf("%s: %.0f %%, %.0f loads/h", name, 100*result.Violations, result.Loads*time.Hour.Seconds()), Color: n}
		high := rowUsed / float64(len(policies))
		for id := range p.parts {
			p.change(sc.WarmUp+sc.Duration, id, false) // what is in memory at the end counts until then
			base := float64(id) + 1 - rowUsed/2 + high*float64(n)
			s.Boxes = append(s.Boxes, p.boxes(id, base, high)...)
		}
		c.Series = append(c.Series, s)
	}
	return c, nil
}

// presence is when models are in memory.
type presence struct {
	sc    Scenario
	since []time.Duration         // of each model that is, else 0
	parts [][pictureSteps]float64 // of the steps
}

// change takes in that a model was loaded or evicted.
func (p *presence) change(at time.Duration, id int, loaded bool) {
	from, step := p.since[id], p.sc.Duration/pictureSteps
	switch {
	case loaded: // 0 means that it is not in memory
		p.since[id] = max(at, p.sc.WarmUp, 1)
		return
	case from == 0:
		return
	}
	p.since[id] = 0
	// A model may have been there for many steps, and in part of the first and the last.
	for i := range p.parts[id] {
		begin := p.sc.WarmUp + time.Duration(i)*step
		if lasts := min(at, begin+step) - max(from, begin); lasts > 0 {
			p.parts[id][i] += float64(lasts) / float64(step)
		}
	}
}

// boxes returns the boxes of a model, on a base. Neighbours of the same height are one.
func (p *presence) boxes(id int, base, high float64) (all [][4]float64) {
	hours := func(i int) float64 { return float64(i) * (p.sc.Duration / pictureSteps).Hours() }
	parts := p.parts[id]
	for i := range parts {
		parts[i] = math.Round(parts[i]/grain) * grain
	}
	for from := 0; from < pictureSteps; {
		to := from + 1
		for to < pictureSteps && parts[to] == parts[from] {
			to++
		}
		if parts[from] > 0 {
			all = append(all, [4]float64{hours(from), base, hours(to), base + high*parts[from]})
		}
		from = to
	}
	return all
}
