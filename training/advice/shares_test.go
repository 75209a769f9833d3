package advice

import (
	"slices"
	"testing"
	"time"
)

// filled is batches of 1 and 8 queries of one operator that takes 1 ms for each query, and
// keeps a part of the device busy.
func filled(part float64) (list []batchTimes) {
	for _, size := range []float64{1, 8} {
		micros := 1000 * size
		list = append(list, batchTimes{queries: size, micros: micros, work: part * micros, operator: []float64{micros}, job: []float64{part * micros}})
	}
	return list
}

// Batches in turns are as large as targets allow, and run at the same time where that pays.
func TestTogether(t *testing.T) {
	p := &panel{services: []Service{{Name: "a", QPS: 100, Target: 100 * time.Millisecond}, {Name: "b", QPS: 100, Target: 100 * time.Millisecond}}}
	all := [][]batchTimes{filled(1), filled(1)}
	if got := p.together([]int{0, 1}, all, false); !near(got, 5, 1e-9) {
		t.Errorf("1000 queries a second of both are %v times 100 of each, want 5", got)
	}
	if got := p.together([]int{0, 1}, all, true); got < 4.8 || got > 5 {
		t.Errorf("at the same time, where nothing is left idle, it is %v, want 5 at most", got)
	}
	if got := p.together([]int{0, 1}, [][]batchTimes{filled(0.1), filled(0.1)}, true); got < 9 || got > 10 {
		t.Errorf("at the same time it is %v, want nearly 10", got)
	}
	p.services[0].Target = time.Millisecond
	if got := p.together([]int{0, 1}, all, false); got != 0 {
		t.Errorf("a target that nothing meets bears %v", got)
	}
}

// The split gives more to who asks more, of all of the device, and is only made where loads
// and targets are known.
func TestSplit(t *testing.T) {
	w := newWorkshop(5, 2)
	d := w.dataset(200, []int{0, 1})
	services := []Service{{Name: "a", Model: "m00", QPS: 5, Target: time.Second}, {Name: "b", Model: "m01", QPS: 50, Target: time.Second}}
	advise := func(list []Service) *Advice {
		t.Helper()
		a := advised(t, d, Options{Services: list})
		return a
	}
	a := advise(services)
	if len(a.Splits) != 1 {
		t.Fatalf("%d splits", len(a.Splits))
	}
	s := a.Splits[0]
	if !slices.Equal(s.Services, []string{"a", "b"}) || s.Percent[0]+s.Percent[1] != 100 || s.Percent[0] >= s.Percent[1] || s.Static <= 0 || s.EDF <= 0 || s.Overlap < s.EDF {
		t.Errorf("%+v", s)
	}
	double := slices.Clone(services)
	for i := range double {
		double[i].QPS *= 2
	}
	if got := advise(double).Splits[0]; !near(got.Static, s.Static/2, 1e-6) || !slices.Equal(got.Percent, s.Percent) {
		t.Errorf("twice the load: %+v, once: %+v", got, s)
	}
	for _, change := range []func(*Service){func(s *Service) { s.QPS = 0 }, func(s *Service) { s.Target = 0 }} {
		list := slices.Clone(services)
		change(&list[1])
		if a := advise(list); len(a.Splits) != 0 {
			t.Errorf("without a load or a target: %+v", a.Splits[0])
		}
	}
}
