package training

import "fmt"

// Without returns the rows of d that known does not have. Rows are the same if
// the names of their models, their spans and their times are.
func (d *Dataset) Without(known *Dataset) *Dataset {
	have := map[string]bool{}
	for i := range known.Rows {
		have[known.rowKey(&known.Rows[i])] = true
	}
	rest := &Dataset{Device: d.Device, Models: d.Models}
	for i := range d.Rows {
		if !have[d.rowKey(&d.Rows[i])] {
			rest.Rows = append(rest.Rows, d.Rows[i])
		}
	}
	return rest
}

// rowKey names a row whatever the positions of its models are.
func (d *Dataset) rowKey(r *Row) string {
	key := make([]byte, 0, 128)
	for _, s := range r.Group.Spans {
		key = fmt.Appendf(key, "%q %d %d %d %d|", d.Models[s.Service].Name, s.Start, s.End, s.Size, s.SeqLen)
	}
	return string(fmt.Appendf(key, "%v %v %v", r.Median, r.Mean, r.Std))
}
