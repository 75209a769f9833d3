package load

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/internal/report"
)

var update = flag.Bool("update", false, "write the golden files anew")

// madeUp returns a run of two services of which all numbers are known.
func madeUp() *run {
	o := DefaultOptions()
	o.URL, o.Rate, o.Connections = "http://127.0.0.1:8000", 40, 8
	o.Version, o.Commit = "v0.1.0", "0123abc"
	r := &run{options: &o, daemon: &daemon{server: "overlapd v0.1.0"}, ended: 10 * time.Second, cpu: 50 * time.Millisecond}
	for i, name := range []string{"resnet50", "bert"} {
		svc := &service{name: name, device: "cpu", target: time.Duration(i+1) * 50 * ms}
		r.daemon.services = append(r.daemon.services, svc)
		s := &stream{service: svc, rec: newRecorder(svc.target)}
		s.rec.add(&outcome{due: -1, sent: -1, done: 1, reason: "connection", timed: true})
		for n := range 200 {
			due := time.Duration(n) * 50 * ms
			out := outcome{due: due, sent: due + 50*time.Microsecond, timed: true}
			out.done = due + time.Duration(20+n*n/600)*ms
			if n%50 == 49 {
				out.busy, out.sent = true, due+4*ms
				out.reason = []string{"deadline", "queue_full"}[n/50%2]
			}
			s.rec.add(&out)
		}
		r.streams = append(r.streams, s)
	}
	return r
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestResultAsText(t *testing.T) {
	var b strings.Builder
	if err := madeUp().result(false).Document().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "result.txt", b.String())
}

func TestTextOfAnInterruptedRunWithoutAnswers(t *testing.T) {
	r := madeUp()
	r.ended = -ms
	for _, s := range r.streams {
		s.rec, s.service.target = newRecorder(0), 0
	}
	res := r.result(true)
	var b strings.Builder
	if err := res.Document().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.Contains(got, "interrupted") || strings.Contains(got, "latency, ms") || strings.Contains(got, "NaN") {
		t.Errorf("text:\n%s", got)
	}
	if res.Duration != 0 || res.Throughput != 0 || res.Goodput != nil {
		t.Errorf("%g s, %g answers/s, goodput %v; want nothing", res.Duration, res.Throughput, res.Goodput)
	}
}

func TestHistogramCountsAll(t *testing.T) {
	for _, values := range [][]time.Duration{
		{0},
		{ms, ms, ms},
		{time.Nanosecond, ms, time.Hour},
		{3 * ms, 5 * ms, 8 * ms, 13 * ms, 21 * ms, 34 * ms},
	} {
		l := newLatencies()
		for _, v := range values {
			l.record(v)
		}
		var b strings.Builder
		d := &report.Document{}
		d.Table(l.histogram())
		if err := d.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		total := 0
		for line := range strings.Lines(b.String()) {
			fields := strings.Fields(line)
			n := 0
			if len(fields) > 1 && fields[0] != "up" {
				fmt.Sscan(fields[len(fields)-1], &n)
			}
			total += n
		}
		if total != len(values) || strings.Contains(b.String(), "NaN") {
			t.Errorf("%v: %d counted in\n%s", values, total, b.String())
		}
	}
}
