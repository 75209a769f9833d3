package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/overlapd/overlapd/daemon/status"
)

// writeLoading prints which workers load their models, and how far they are.
func writeLoading(w io.Writer, list []status.Loading) {
	for i := range list {
		fmt.Fprintf(w, "\n%s\n", loadingText(&list[i]))
	}
}

// loadingText describes how far a worker is that loads.
func loadingText(l *status.Loading) string {
	steps := ""
	if l.Total > 0 {
		steps = fmt.Sprintf(", %d of %d steps done", l.Done, l.Total)
	}
	return fmt.Sprintf("%s loads its model (%s%s) since %s", l.Service, l.Phase, steps, brief(l.LoadSeconds))
}

// measuredText says how far measuring is, and when it ends.
func measuredText(m *status.Progress) string {
	text := fmt.Sprintf("measured %d of %d", m.Done, m.Total)
	if m.LeftSeconds > 0 {
		text += fmt.Sprintf(", about %s left", brief(m.LeftSeconds))
	}
	if m.LimitSeconds > 0 {
		text += fmt.Sprintf("; what is not measured after %s is left out", brief(m.LimitSeconds))
	}
	return text
}

// brief prints seconds for people: 90 as 1m30s, 120 as 2m, 0.0123 as 12ms.
func brief(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d >= time.Second:
		d = d.Round(time.Second)
	case d >= time.Millisecond:
		d = d.Round(time.Millisecond)
	default:
		d = d.Round(time.Microsecond)
	}
	text := d.String()
	for _, unit := range []string{"m0s", "h0m"} {
		if whole, ok := strings.CutSuffix(text, unit); ok {
			text = whole + unit[:1]
		}
	}
	return text
}
