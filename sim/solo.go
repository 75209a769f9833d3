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
				if err := table.SetOperators(models.ServiceID(i), size, seqLen, sc.Device.OperatorTimes(m, size, seqLen)); err != nil {
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
