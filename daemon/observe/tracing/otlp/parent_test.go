package otlp

import (
	"regexp"
	"testing"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
)

// wellFormed is a traceparent of version 00 as the W3C defines it, with no flag
// but those it knows.
var wellFormed = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-0[0-3]$`)

func TestParent(t *testing.T) {
	const good = "00-" + parentTrace + "-" + parentSpan + "-01"
	for name, c := range map[string]struct {
		p       tracing.Parent
		valid   bool
		sampled bool
		state   string
	}{
		"none":             {},
		"sampled":          {tracing.Parent{Traceparent: []string{good}}, true, true, ""},
		"not sampled":      {tracing.Parent{Traceparent: []string{good[:len(good)-1] + "0"}}, true, false, ""},
		"random":           {tracing.Parent{Traceparent: []string{good[:len(good)-1] + "3"}}, true, true, ""},
		"state":            {tracing.Parent{Traceparent: []string{good}, Tracestate: []string{"a=1,b=2"}}, true, true, "a=1,b=2"},
		"states":           {tracing.Parent{Traceparent: []string{good}, Tracestate: []string{"a=1", "b=2"}}, true, true, "a=1,b=2"},
		"bad state":        {tracing.Parent{Traceparent: []string{good}, Tracestate: []string{"a=1,a=1,,=="}}, true, true, ""},
		"twice":            {tracing.Parent{Traceparent: []string{good, good}}, false, false, ""},
		"capitals":         {tracing.Parent{Traceparent: []string{"00-0AF7651916CD43DD8448EB211C80319C-" + parentSpan + "-01"}}, false, false, ""},
		"no trace":         {tracing.Parent{Traceparent: []string{"00-00000000000000000000000000000000-" + parentSpan + "-01"}}, false, false, ""},
		"no span":          {tracing.Parent{Traceparent: []string{"00-" + parentTrace + "-0000000000000000-01"}}, false, false, ""},
		"version ff":       {tracing.Parent{Traceparent: []string{"ff" + good[2:]}}, false, false, ""},
		"later version":    {tracing.Parent{Traceparent: []string{"cc" + good[2:] + "-what-the-future-brings"}}, true, true, ""},
		"more than it may": {tracing.Parent{Traceparent: []string{good + "-01"}}, false, false, ""},
		"a space":          {tracing.Parent{Traceparent: []string{good + " "}}, false, false, ""},
		"state only":       {tracing.Parent{Tracestate: []string{"a=1"}}, false, false, ""},
	} {
		got := parentOf(&c.p)
		if got.IsValid() != c.valid || got.IsSampled() != c.sampled || got.TraceState().String() != c.state {
			t.Errorf("%s: %+v", name, got)
		}
		if c.valid && (got.TraceID().String() != parentTrace || got.SpanID().String() != parentSpan || !got.IsRemote()) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Of version 00, exactly what is well formed is taken.
func FuzzParent(f *testing.F) {
	f.Add("00-"+parentTrace+"-"+parentSpan+"-01", "a=1")
	f.Add("00-"+parentTrace+"-"+parentSpan+"-", "")
	f.Add("00--"+parentTrace+parentSpan+"-00", "=,")
	f.Add("fe-"+parentTrace+"-"+parentSpan+"-01-x", "a=1,b@c=2")
	f.Fuzz(func(t *testing.T, traceparent, tracestate string) {
		p := tracing.Parent{Traceparent: []string{traceparent}, Tracestate: []string{tracestate}}
		got := parentOf(&p)
		m := wellFormed.FindStringSubmatch(traceparent)
		want := m != nil && m[1] != "00000000000000000000000000000000" && m[2] != "0000000000000000"
		if later := len(traceparent) > 2 && traceparent[:2] != "00"; got.IsValid() != want && !(later && got.IsValid()) {
			t.Errorf("%q: %+v", traceparent, got)
		}
		if want && (got.TraceID().String() != m[1] || got.SpanID().String() != m[2]) {
			t.Errorf("%q: %+v", traceparent, got)
		}
	})
}
