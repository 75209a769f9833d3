package training

import (
	"fmt"
	"strings"

	"github.com/overlapd/overlapd/models"
)

// storedRows is how often and with which median each group was measured.
type storedRows map[string][]float64

// indexRows finds the rows whose models are all among the subjects.
func indexRows(subjects []Subject, d *Dataset) storedRows {
	stored := storedRows{}
	if d == nil {
		return stored
	}
	position := map[Model]models.ServiceID{}
	for i, s := range subjects {
		position[s.Model] = models.ServiceID(i)
	}
	for _, row := range d.Rows {
		spans := make([]models.Span, 0, len(row.Group.Spans))
		for _, span := range row.Group.Spans {
			p, ok := position[d.Models[span.Service]]
			if !ok {
				break
			}
			span.Service = p
			spans = append(spans, span)
		}
		if len(spans) == len(row.Group.Spans) {
			key := groupKey(models.Group{Spans: spans})
			stored[key] = append(stored[key], row.Median)
		}
	}
	return stored
}

// take removes one stored row of a group.
func (s storedRows) take(g models.Group) (median float64, ok bool) {
	key := groupKey(g)
	found := s[key]
	if len(found) == 0 {
		return 0, false
	}
	s[key] = found[1:]
	return found[0], true
}

// groupKey names a group whatever batches run it.
func groupKey(g models.Group) string {
	var b strings.Builder
	for _, s := range g.Spans {
		fmt.Fprintf(&b, "%d %d %d %d %d|", s.Service, s.Start, s.End, s.Size, s.SeqLen)
	}
	return b.String()
}
