package overlap

import "github.com/overlapd/overlapd/models"

// DefaultWays and MaxWays are how many candidates a search asks about at once
// if the configuration does not say, and at most.
const (
	DefaultWays = 4
	MaxWays     = 64
)

// search returns the largest number in (low, high] that passes, or low if none
// does, taking it that whatever is below one that passes passes as well. It
// splits the range in ways+1 parts with one call of the predictor: the
// multi-way search of Abacus, section 6.3. propose adds the group of a number
// to what is asked; pass judges by its estimate, from the least number up,
// until one does not pass.
func (d *decision) search(low, high int, propose func(n int), pass func(n int, e models.Estimate) bool) int {
	var points [MaxWays]int
	for low < high {
		count := min(d.ways, high-low)
		d.ask.clear()
		for i := range count {
			points[i] = low + (high-low+1)*(i+1)/(count+1)
			propose(points[i])
		}
		for i, e := range d.ask.take() {
			if !pass(points[i], e) {
				high = points[i] - 1
				break
			}
			low = points[i]
		}
	}
	return low
}
