package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/overlap/journal"
)

// writeRound prints a round as a person reads it.
func writeRound(w io.Writer, r *journal.Report, round *journal.Round) {
	fmt.Fprintf(w, "round %d at %v, policy %s, line %d\n", round.Number, round.At, r.Policy, round.Line)
	if round.Planned {
		fmt.Fprintf(w, "planned ahead for %v, while another round ran\n", round.For)
	}
	writeCandidates(w, r, round)
	writeQuestions(w, r, round)
	for _, a := range round.Dropped {
		fmt.Fprintf(w, "\nquery %d of %s ended before: %v (%v)\n", a.Query, r.Services[a.Service], a.Result, a.Reason)
	}
	fmt.Fprintf(w, "\nchosen: %s\n", spans(r, round.Group))
	fmt.Fprintf(w, "  because %s\n", reason(r, round))
	for i, s := range round.Group.Spans {
		fmt.Fprintf(w, "  %s: batch %d, size %d, queries %v\n", r.Services[s.Service], s.Batch, s.Size, round.Queries[i])
	}
	fmt.Fprintf(w, "predicted: %v, bound %v\n", micros(round.Predicted.Latency), micros(round.Predicted.Bound))
	writeMeasured(w, r, round)
}

func writeCandidates(w io.Writer, r *journal.Report, round *journal.Round) {
	fmt.Fprintln(w, "\ncandidates, the most urgent first:")
	t := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  SERVICE\tQUERY\tFROM OPERATOR\tSIZE\tHEADROOM\tREST ALONE\tPLACE IN THE GROUP")
	for _, c := range round.Candidates {
		solo, place := "not asked", "-"
		if c.Solo.Latency > 0 {
			solo = micros(c.Solo.Latency).String()
		}
		if c.Place > 0 {
			place = fmt.Sprint(c.Place)
		}
		fmt.Fprintf(t, "  %s\t%d\t%d\t%d\t%v\t%s\t%s\n", r.Services[c.Service], c.Query, c.Start, c.Size, micros(c.Headroom), solo, place)
	}
	t.Flush() // to memory
}

func writeQuestions(w io.Writer, r *journal.Report, round *journal.Round) {
	groups := 0
	for _, call := range round.Calls {
		groups += len(call)
	}
	fmt.Fprintf(w, "\nasked of the predictor: %d groups in %d calls\n", groups, len(round.Calls))
	for i, call := range round.Calls {
		for _, q := range call {
			says := "unknown"
			if q.Estimate.Latency > 0 {
				says = fmt.Sprintf("%v, bound %v", micros(q.Estimate.Latency), micros(q.Estimate.Bound))
			}
			fmt.Fprintf(w, "  %d: %s: %s\n", i+1, spans(r, q.Group), says)
		}
	}
}

// reason says why the group is what it is.
func reason(r *journal.Report, round *journal.Round) string {
	first := r.Services[round.Group.Spans[0].Service]
	if len(round.Group.Spans) > 1 {
		return fmt.Sprintf("%s is the most urgent, and with the others the group is predicted to keep to %v%s",
			first, micros(round.Limit), gain(round))
	}
	switch {
	case len(round.Candidates) < 2:
		return "there was nothing else to run"
	case len(round.Calls) == 0:
		return first + " comes first, and nothing was asked about the others"
	case asked(round):
		return first + " comes first, and no group with others was predicted to fit and to gain"
	}
	return first + " comes first, and no group with others was asked about"
}

// gain says what a group saves against its spans one after another.
func gain(round *journal.Round) string {
	if round.Solo <= 0 {
		return ""
	}
	return fmt.Sprintf(", where one after another they take %v", micros(round.Solo))
}

// asked reports whether the predictor was asked about several spans together.
func asked(round *journal.Round) bool {
	for _, call := range round.Calls {
		for _, q := range call {
			if len(q.Group.Spans) > 1 {
				return true
			}
		}
	}
	return false
}

func writeMeasured(w io.Writer, r *journal.Report, round *journal.Round) {
	fmt.Fprintf(w, "measured: %v", micros(round.Outcome.Took))
	if ratio, ok := round.Ratio(); ok {
		fmt.Fprintf(w, ", %.2f of what was predicted", ratio)
	}
	fmt.Fprintf(w, ", over at %v\n", round.Finished)
	for _, so := range round.Outcome.Spans {
		for _, s := range round.Group.Spans {
			if s.Batch == so.Span.Batch {
				fmt.Fprintf(w, "  %s: %v at operator %d after %v\n", r.Services[s.Service], so.Status, so.Reached, micros(so.Took))
			}
		}
	}
	for _, a := range round.Answers {
		fmt.Fprintf(w, "  query %d: %s\n", a.Query, ending(a))
	}
}

func ending(a overlap.Answer) string {
	if a.Reason == overlap.ReasonNone {
		return fmt.Sprintf("%v, queued %v, ran %v", a.Result, micros(a.Queue), micros(a.Run))
	}
	return fmt.Sprintf("%v (%v)", a.Result, a.Reason)
}

// spans returns a group in words.
func spans(r *journal.Report, g models.Group) string {
	var parts []string
	for _, s := range g.Spans {
		name := fmt.Sprintf("service %d", s.Service)
		if s.Service >= 0 && int(s.Service) < len(r.Services) {
			name = r.Services[s.Service]
		}
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

func micros(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
