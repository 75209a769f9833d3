package watching

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// writeRoundLine writes what ran, when, and how far the prediction was off.
func (r *replayed) writeRoundLine(w io.Writer, x *replayedRound) {
	ratio := ""
	if q, ok := x.ratio(); ok {
		ratio = fmt.Sprintf(" (%.2f)", q)
	}
	fmt.Fprintf(w, "%d at %v: %s: predicted %v, took %v%s\n", x.Number, x.chosen.At.Round(time.Microsecond),
		r.spans(x.Group), micros(x.Predicted.Latency), micros(x.latency()), ratio)
}

// writeRound explains a round in the order in which it came about: what there was to run, what the
// predictor was asked, what was chosen, and what became of it.
func (r *replayed) writeRound(w io.Writer, x *replayedRound) {
	fmt.Fprintf(w, "round %d at %v, policy %s, line %d\n", x.Number, x.chosen.At, r.Policy, x.chosen.Line)
	// What was known when it was planned may have changed until it ran.
	if x.Planned {
		fmt.Fprintf(w, "planned ahead for %v, while another round ran\n", x.chosen.Explanation.For)
	}
	r.writeCandidates(w, x)
	r.writeQuestions(w, x)
	// Shedding load is part of the same decision.
	for _, a := range x.chosen.Ended {
		fmt.Fprintf(w, "\nquery %d of %s ended earlier: %v (%v)\n", a.Query, r.Services[a.Service], a.Result, a.Reason)
	}
	fmt.Fprintf(w, "\nchosen: %s\n", r.spans(x.Group))
	fmt.Fprintf(w, "  because %s\n", r.reason(x))
	for i, s := range x.Spans {
		fmt.Fprintf(w, "  %s: batch %d, size %d, queries %v\n", r.Services[s.Service], s.Batch, s.Size, x.Queries[i])
	}
	fmt.Fprintf(w, "predicted: %v, bound %v\n", micros(x.Predicted.Latency), micros(x.Predicted.Bound))
	r.writeMeasured(w, x)
}

// writeCandidates lists the most urgent work of each service, which is all that a decision sees.
func (r *replayed) writeCandidates(w io.Writer, x *replayedRound) {
	fmt.Fprintln(w, "\ncandidates, most urgent first:")
	t := report.NewTable("SERVICE", "QUERY", "FROM OPERATOR", "SIZE", "HEADROOM", "REMAINING ALONE", "PLACE IN THE GROUP")
	for _, c := range x.chosen.Explanation.Candidates {
		solo, place := "not asked", "-"
		// What comes after the group is full is not asked about.
		if c.Solo.Latency > 0 {
			solo = micros(c.Solo.Latency).String()
		}
		if c.Place > 0 {
			place = fmt.Sprint(c.Place)
		}
		t.Rowf("%s\t%d\t%d\t%d\t%v\t%s\t%s", r.Services[c.Service], c.Query, c.Start, c.Size, micros(c.Headroom), solo, place)
	}
	_ = t.WriteText(w) // w keeps its first error
}

// writeQuestions lists what the predictor was asked, in the calls in which it was: groups of one call
// were weighed against each other.
func (r *replayed) writeQuestions(w io.Writer, x *replayedRound) {
	groups := 0
	for _, call := range x.chosen.Calls {
		groups += len(call)
	}
	fmt.Fprintf(w, "\npredictions: %s in %s\n", report.Count(groups, "group"), report.Count(len(x.chosen.Calls), "call"))
	for i, call := range x.chosen.Calls {
		for _, q := range call {
			// The predictor does not guess: what it was never trained on it does not know.
			says := "unknown"
			if q.Estimate.Latency > 0 {
				says = fmt.Sprintf("%v, bound %v", micros(q.Estimate.Latency), micros(q.Estimate.Bound))
			}
			fmt.Fprintf(w, "  %d: %s: %s\n", i+1, r.spans(q.Group), says)
		}
	}
}

// reason says why the group was chosen, as far as the record tells: the scheduler notes numbers, not
// reasons, so that logging costs little.
func (r *replayed) reason(x *replayedRound) string {
	first := r.Services[x.Spans[0].Service]
	asked := false // about several spans together
	for _, q := range slices.Concat(x.chosen.Calls...) {
		asked = asked || len(q.Group.Spans) > 1
	}
	// What the record holds tells these cases apart. Where a group was refused, it is not known for which of
	// its services.
	switch {
	case len(x.Spans) > 1:
		text := fmt.Sprintf("%s is the most urgent, and the whole group is predicted to finish within %v", first, micros(x.chosen.Explanation.Headroom))
		if x.chosen.Explanation.Solo > 0 {
			text += fmt.Sprintf(", where one after another they take %v", micros(x.chosen.Explanation.Solo))
		}
		return text
	case len(x.chosen.Explanation.Candidates) < 2:
		return "there was nothing else to run"
	case len(x.chosen.Calls) == 0:
		return first + " comes first, and the others were not predicted"
	case asked:
		return first + " comes first, and no group with others was predicted to meet the deadlines and gain"
	}
	return first + " comes first, and no group with others was predicted"
}

// writeMeasured says how long it took, and what the clients got.
func (r *replayed) writeMeasured(w io.Writer, x *replayedRound) {
	fmt.Fprintf(w, "measured: %v", micros(x.latency()))
	if ratio, ok := x.ratio(); ok {
		fmt.Fprintf(w, ", %.2f times the prediction", ratio)
	}
	fmt.Fprintf(w, ", over at %v\n", x.end.At)
	// A span that was stopped ended at another operator than was planned.
	for _, so := range x.end.Outcome.Spans {
		for _, s := range x.Spans {
			if s.Batch == so.Span.Batch {
				fmt.Fprintf(w, "  %s: %v at operator %d after %v\n", r.Services[s.Service], so.Status, so.Reached, micros(so.Took))
			}
		}
	}
	for _, a := range x.answers {
		if a.Reason == overlap.ReasonNone {
			fmt.Fprintf(w, "  query %d: %v, queued %v, ran %v\n", a.Query, a.Result, micros(a.Queue), micros(a.Run))
		} else {
			fmt.Fprintf(w, "  query %d: %v (%v)\n", a.Query, a.Result, a.Reason)
		}
	}
}

// spans names what runs together. Of a service that the log does not name, the number is all there is.
func (r *replayed) spans(g models.Group) string {
	var parts []string
	for _, s := range g.Spans {
		name := fmt.Sprintf("service %d", s.Service)
		if s.Service >= 0 && int(s.Service) < len(r.Services) {
			name = r.Services[s.Service]
		}
		// Operators are half open, as everywhere; sizes and lengths only where they say something.
		part := fmt.Sprintf("%s [%d,%d)", name, s.Start, s.End)
		if s.Size > 1 {
			part += fmt.Sprintf(" ×%d", s.Size)
		}
		if s.SeqLen > 0 {
			part += fmt.Sprintf(" seq %d", s.SeqLen)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " + ")
}
