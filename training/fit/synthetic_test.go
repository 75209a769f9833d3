package fit

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
)

// synthetic draws groups of one to three of four models, whose latency is the
// longest of their isolated latencies or the sum of their work, with a spread of 1 %.
func synthetic(rows int, seed uint64) *training.Dataset {
	random := rand.New(rand.NewPCG(seed, 7))
	d := &training.Dataset{Device: "formula"}
	for i, operators := range []int{6, 11, 24, 40} {
		d.Models = append(d.Models, training.Model{Name: fmt.Sprintf("m%d", i), Operators: operators})
	}
	for range rows {
		var r training.Row
		first := random.IntN(len(d.Models))
		for k := range 1 + random.IntN(3) {
			if model := first + k; model < len(d.Models) {
				r.Group.Spans = append(r.Group.Spans, drawSpan(random, model, d.Models[model].Operators))
			}
		}
		r.Median = formula(r.Group) * (1 + 0.01*random.NormFloat64())
		r.Mean, r.Std, r.Repeats = r.Median, 0.01*r.Median, 10
		d.Rows = append(d.Rows, r)
	}
	return d
}

func drawSpan(random *rand.Rand, model, operators int) models.Span {
	s := models.Span{Service: models.ServiceID(model), Size: 1 << random.IntN(4), End: operators}
	if random.IntN(2) == 0 {
		s.Start = random.IntN(operators)
	} else {
		s.End = 1 + random.IntN(operators)
	}
	if model == 1 {
		s.SeqLen = 16 << random.IntN(3)
	}
	return s
}

func formula(g models.Group) float64 {
	var longest, work float64
	for _, s := range g.Spans {
		micros, busy := 0.0, 0.0
		for o := s.Start; o < s.End; o++ {
			cost := 100 + 50*math.Sin(float64(o)/3+float64(s.Service))
			micros += cost * (1 + float64(s.Size)/10 + float64(s.SeqLen)/100)
			busy += cost * float64(s.Size) / 8
		}
		longest = max(longest, micros)
		work += busy
	}
	return max(longest, work)
}

// quick are options for a fit that takes a moment: without trial.
func quick() Options {
	o := DefaultOptions()
	o.Hidden = []int{8, 8}
	o.Epochs = 3
	o.allMany = true
	return o
}
