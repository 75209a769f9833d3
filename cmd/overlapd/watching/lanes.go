package watching

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/internal/stats"
)

// picture returns a time line of rounds, in which a character is a piece of time: a row
// for the device and one for each service.
func (v *view) picture(columns int) (legend, device string, services []string) {
	p := &v.now.Timeline
	rounds := p.Rounds
	// Without load a new user would see nothing, and not know why.
	if len(rounds) == 0 {
		return "no group has run yet: put load on the daemon with overlapd bench serve", "", make([]string, len(p.Services))
	}
	// A column is as long as a third of a round, so that most rounds can be told from the next.
	each := columnTime(rounds)
	end := rounds[len(rounds)-1].End
	begin := end - each*time.Duration(columns)
	rows := make([][]rune, len(p.Services)+1) // the last one is of the device
	// Each row is a piece of text, in which later rounds may overwrite the end of earlier ones.
	for i := range rows {
		rows[i] = slices.Repeat([]rune{'.'}, columns)
	}
	for i := range rounds {
		r := &rounds[i]
		fill := func(row []rune, mark rune) {
			for x := max(0, r.Start-begin) / each; x <= (r.End-begin-1)/each && r.End > begin; x++ {
				row[x] = mark
			}
		}
		// On an emulated device the host's own delay is no fault of the prediction.
		if r.Bound > 0 && r.Took-r.Late > r.Bound {
			fill(rows[len(p.Services)], '!')
		} else {
			fill(rows[len(p.Services)], '=')
		}
		for j := range r.Spans {
			s := &r.Spans[j]
			fill(rows[s.Service], '#')
			// A deadline is marked where its batch ends, unless something runs there: the mark would hide it.
			if limit := s.Deadline - begin; limit > 0 && s.End == s.Of && rows[s.Service][min(columns-1, int(limit/each))] == '.' && limit < each*time.Duration(columns) {
				rows[s.Service][int(limit/each)] = 'v'
			}
		}
	}
	for _, row := range rows[:len(p.Services)] {
		services = append(services, string(row))
	}
	return fmt.Sprintf("each column %v: # running, v deadline, ! longer than predicted", each), string(rows[len(p.Services)]), services
}

// columnTime is 1, 2 or 5 times a power of ten: the median of rounds has about three.
func columnTime(rounds []timeline.Round) time.Duration {
	var took []time.Duration
	for _, r := range rounds[max(0, len(rounds)-50):] {
		took = append(took, r.End-r.Start)
	}
	third := max(float64(stats.Median(took))/3, float64(10*time.Microsecond))
	power := math.Pow(10, math.Floor(math.Log10(third)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= third*0.999 {
			return time.Duration(math.Round(f * power))
		}
	}
	return time.Duration(math.Round(10 * power))
}
