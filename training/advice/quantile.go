package advice

import (
	"math"
	"slices"
)

// quantileOf returns the value at a share of the sorted values, between two of
// them if need be, and 0 if there are none. It sorts the values.
func quantileOf(values []float64, share float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	at := share * float64(len(values)-1)
	i := int(math.Floor(at))
	if i+1 >= len(values) {
		return values[len(values)-1]
	}
	return values[i] + (at-float64(i))*(values[i+1]-values[i])
}
