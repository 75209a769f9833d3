package journal

import (
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Question is a group that the predictor was asked about, and what it said.
type Question struct {
	Group    models.Group // without batches, which a predictor does not know
	Estimate models.Estimate
}

func (q *Question) isAbout(g models.Group) bool {
	if len(g.Spans) != len(q.Group.Spans) {
		return false
	}
	for i, s := range g.Spans {
		if !alike(s, q.Group.Spans[i]) {
			return false
		}
	}
	return true
}

// alike reports whether two spans are the same to a predictor, which knows
// nothing of batches.
func alike(a, b models.Span) bool {
	a.Batch, b.Batch = 0, 0
	return a == b
}

const (
	questionNumbers = 3 // spans of the group before, latency, bound
	spanNumbers     = 5 // service, start, end, size, sequence length
)

// questions appends those of one call of the predictor.
func questions(to []Question, call [][]int64) ([]Question, error) {
	var last []models.Span
	for _, n := range call {
		if len(n) < questionNumbers || (len(n)-questionNumbers)%spanNumbers != 0 || n[0] < 0 || n[0] > int64(len(last)) {
			return to, fmt.Errorf("a question of %d numbers", len(n))
		}
		q := Question{Estimate: models.Estimate{Latency: time.Duration(n[1]), Bound: time.Duration(n[2])}}
		q.Group.Spans = append(q.Group.Spans, last[:n[0]]...)
		for s := n[questionNumbers:]; len(s) > 0; s = s[spanNumbers:] {
			q.Group.Spans = append(q.Group.Spans, models.Span{
				Service: models.ServiceID(s[0]), Start: int(s[1]), End: int(s[2]), Size: int(s[3]), SeqLen: int(s[4]),
			})
		}
		last = q.Group.Spans
		if len(last) > overlap.MaxServices {
			return to, fmt.Errorf("a question about %d spans", len(last))
		}
		to = append(to, q)
	}
	return to, nil
}
