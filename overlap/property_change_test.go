package overlap

import (
	"errors"
	"fmt"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

// both tells an event to both schedulers and returns what they both say.
func (w *twin) both(tell func(*Scheduler) error) error {
	errA, errB := tell(w.a), tell(w.b)
	w.same("refusal", fmt.Sprint(errA), fmt.Sprint(errB))
	return errA
}

// add adds a service where one was removed, or after the last.
func (w *twin) add(t *rapid.T) {
	if len(w.services) == maxTwinServices && len(w.removed) == 0 {
		return
	}
	id := models.ServiceID(len(w.services))
	for free := range id {
		if w.removed[free] && rapid.Bool().Draw(t, "again") || len(w.services) == maxTwinServices && w.removed[free] {
			id = free
			break
		}
	}
	if int(id) == maxTwinServices {
		return
	}
	m := anyService(t, w.costs, id)
	w.route(t, &m)
	if err := w.both(func(s *Scheduler) error { return s.add(w.now, m) }); err != nil {
		t.Fatal(err)
	}
	if int(id) == len(w.services) {
		w.services = append(w.services, m)
	}
	w.services[id], w.varied = m, w.varied || m.Of != ""
	for device := range w.rounds {
		w.down[worker{id, device}] = true
	}
	delete(w.removed, id)
}

// maxTwinServices is how many services a twin may come to have.
const maxTwinServices = 8

func (w *twin) change(t *rapid.T) {
	id := w.service(t)
	m := anyPromise(t, w.services[id])
	w.route(t, &m)
	err := w.both(func(s *Scheduler) error { return s.change(w.now, m) })
	if w.removed[id] != errors.Is(err, ErrUnknownService) || !w.removed[id] && err != nil {
		t.Fatalf("change of service %d, removed is %v: %v", id, w.removed[id], err)
	}
	if err == nil {
		w.services[id], w.varied = m, w.varied || m.Of != ""
	}
}

// remove removes a service, which works if and only if all its queries are
// answered and its worker does nothing.
func (w *twin) remove(t *rapid.T) {
	id := w.service(t)
	var want error
	for device := range w.rounds {
		if w.overruns(worker{id, device}) {
			want = ErrServiceBusy
		}
	}
	for _, q := range w.open {
		if q.Service == id {
			want = ErrServiceBusy
		}
	}
	if w.removed[id] {
		want = ErrUnknownService
	}
	err := w.both(func(s *Scheduler) error { return s.remove(w.now, id) })
	if !errors.Is(err, want) && !w.varied {
		t.Fatalf("remove of service %d: %v, want %v", id, err, want)
	}
	if err != nil {
		return
	}
	w.removed[id] = true
	if m := w.a.Metrics().Services[id]; m != (ServiceMetrics{}) {
		t.Fatalf("metrics are left: %+v", m)
	}
}
