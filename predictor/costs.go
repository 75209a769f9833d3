package predictor

import "github.com/overlapd/overlapd/models"

// Costs returns the settled solo times of a service, for training: what each
// operator takes alone, by sequence length, then size. Of work it says
// nothing.
func (t *Solo) Costs(service models.ServiceID) ([]CostCell, error) {
	sv, err := t.service(service)
	if err != nil {
		return nil, err
	}
	var cells []CostCell
	for _, c := range sv.cells {
		if !c.settled() {
			continue
		}
		micros := make([]float64, len(c.nanos))
		for i, n := range c.nanos {
			micros[i] = n / 1e3
		}
		cells = append(cells, CostCell{Size: c.size, SeqLen: c.seqLen, Micros: micros})
	}
	return cells, nil
}
