package metrics

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// part is a snapshot of one scheduler in which everything has happened.
func part(name string) *Snapshot {
	s := full(1)
	s.Services[0].Name, s.GPUs[0].UUID = name, "GPU-"+name
	s.Scheduler.Schedulers, s.Scheduler.Inbox, s.Scheduler.BeatAge = 1, 4, time.Second
	everything(s.Record)
	return s
}

func TestJoinOfOne(t *testing.T) {
	s := part("a")
	if Join(s) != s {
		t.Error("a daemon with one scheduler is told of as another")
	}
}

// The parts of a daemon are told of as one: counts are added, services and GPUs
// stand side by side.
func TestJoin(t *testing.T) {
	a, b := part("a"), part("b")
	b.Age, b.Scheduler.Predictor = time.Minute, false
	b.Scheduler.Fallbacks["another"] = 9
	before := text(t, a)
	got := text(t, Join(a, b))
	says(t, got,
		`overlapd_schedulers 2`,
		`overlapd_rounds_total 14`,
		`overlapd_plans_made_total 10`,
		`overlapd_scheduler_inbox_length 8`,
		`overlapd_scheduler_beat_age_seconds 1`,
		`overlapd_scheduler_snapshot_age_seconds 60`,
		`overlapd_predictor_serving 0`,
		`overlapd_predictor_fallbacks_total{reason="queue_full"} 4`,
		`overlapd_predictor_fallbacks_total{reason="another"} 9`,
		`overlapd_group_spans_sum 4`,
		`overlapd_overlap_gained_seconds_total 0.004`,
		`overlapd_queries_accepted_total{service="a"} 100`,
		`overlapd_query_latency_seconds_count{service="b"} 2`,
		`nv_gpu_utilization{gpu_uuid="GPU-b"} 0.41`,
	)
	if line, same := apart(before, text(t, a)); !same {
		t.Errorf("a part has changed: %s", line)
	}
}

// Nothing that is counted is forgotten when schedulers are joined.
func TestJoinAddsEveryCount(t *testing.T) {
	one, two := Scheduler{}, Scheduler{}
	v := reflect.ValueOf(&one).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Int, reflect.Int64:
			f.SetInt(4)
		case reflect.Uint64:
			f.SetUint(4)
		}
	}
	two.add(&one)
	two.add(&one)
	one.BeatAge /= 2 // the greatest is told
	w := reflect.ValueOf(two)
	for i := range w.NumField() {
		name := w.Type().Field(i).Name
		if f, o := w.Field(i), v.Field(i); f.CanInt() && f.Int() != 2*o.Int() || f.CanUint() && f.Uint() != 2*o.Uint() {
			t.Errorf("%s is %v of twice %v", name, f, o)
		}
	}
	r := newRecord(1)
	everything(r)
	r.exceeded = 1
	sum := newRecord(0)
	sum.add(r)
	if diff := cmp.Diff(r.totals, sum.totals, cmp.AllowUnexported(totals{})); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(text(t, &Snapshot{Record: sum, Services: make([]Service, 1)}), "overlapd_group_spans_sum 2\n") {
		t.Error("a histogram was forgotten")
	}
}
