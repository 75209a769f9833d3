package sim

import (
	"slices"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// soloTable measures the services alone, as a profile would: the middle of the
// runs of every operator, for the sizes and sequence lengths that the device
// was measured with and those that the service is asked for.
func soloTable(sc *Scenario, bound []int) (*predictor.Solo, error) {
	known := sc.Device.Models()
	operators := make([]int, len(bound))
	for i, m := range bound {
		operators[i] = known[m].Operators
	}
	table, err := predictor.NewSolo(operators...)
	if err != nil {
		return nil, err
	}
	for i, m := range bound {
		sizes, seqLens := soloShapes(&sc.Services[i], &known[m])
		for _, seqLen := range seqLens {
			for _, size := range sizes {
				if err := table.SetOperators(models.ServiceID(i), size, seqLen, soloTimes(sc.Device, m, known[m].Operators, size, seqLen)); err != nil {
					return nil, err
				}
			}
		}
	}
	return table, nil
}

// soloShapes returns the sizes and sequence lengths that fit into a table.
func soloShapes(s *Service, m *device.ModelInfo) (sizes, seqLens []int) {
	sizes = sorted(m.Sizes, s.Sizes, []int{max(s.MaxBatch, 1)})
	seqLens = sorted(m.SeqLens, s.SeqLens)
	if len(seqLens) == 0 {
		seqLens = []int{0}
	}
	seqLens = thinned(seqLens, predictor.MaxCells/2)
	return thinned(sizes, max(predictor.MaxCells/len(seqLens), 1)), seqLens
}

// sorted returns what is in any of the lists, once.
func sorted(lists ...[]int) []int {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// thinned returns at most n of a list, evenly, its ends among them.
func thinned(list []int, n int) []int {
	if len(list) <= n {
		return list
	}
	if n == 1 {
		return list[len(list)-1:]
	}
	kept := make([]int, n)
	for i := range kept {
		kept[i] = list[i*(len(list)-1)/(n-1)]
	}
	return kept
}

// soloTimes returns what the operators of a model take alone, in nanoseconds.
// A device tells the time of spans, and a span may take more than its parts
// say, so that an operator is given the mean of what it adds at the end of a
// span and at its start. The whole model takes what the device says.
func soloTimes(d Device, model, operators, size, seqLen int) []int64 {
	if t, ok := d.(soloTimer); ok {
		return t.soloTimes(model, size, seqLen)
	}
	return measureSolo(d, model, operators, size, seqLen)
}

func measureSolo(d Device, model, operators, size, seqLen int) []int64 {
	spans := make([]models.Span, 1)
	took := func(start, end int) int64 {
		if start == end {
			return 0
		}
		spans[0] = models.Span{Service: models.ServiceID(model), Start: start, End: end, Size: size, SeqLen: seqLen}
		return int64(d.Latency(models.Group{Spans: spans}))
	}
	nanos := make([]int64, operators)
	before, after := int64(0), took(0, operators)
	for i := range nanos {
		upTo, from := took(0, i+1), took(i+1, operators)
		nanos[i] = max((upTo-before+after-from)/2, 0)
		before, after = upTo, from
	}
	return nanos
}
