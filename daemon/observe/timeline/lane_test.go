package timeline

import (
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// names returns those of services, with a mark on those that are gone.
func names(list []Service) (all []string) {
	for i := range list {
		if list[i].Gone {
			all = append(all, list[i].Name+" gone")
		} else {
			all = append(all, list[i].Name)
		}
	}
	return all
}

// add takes a service into the scheduler and the ring, up at once.
func (s *scheduled) add(m models.Service) {
	s.t.Helper()
	s.step(overlap.Event{Kind: overlap.Add, Definition: m})
	s.step(overlap.Event{Kind: overlap.Up, Service: m.ID})
	if int(m.ID) == len(s.services) {
		s.services = append(s.services, m)
	}
	s.services[m.ID] = m
	s.ring.setService(m, false)
}

// remove removes a service, of which nothing is left.
func (s *scheduled) remove(id models.ServiceID) {
	s.t.Helper()
	s.step(overlap.Event{Kind: overlap.Remove, Service: id})
	s.ring.dropService(id)
}

// round runs one query of a service.
func (s *scheduled) round(service int) {
	s.t.Helper()
	s.arrive(service, time.Second)
	r := s.begin()
	s.end(r)
	s.ring.answered(models.ServiceID(service), time.Millisecond, true)
}

// Rounds keep the name they ran with, whatever service has the ID now.
func TestRoundsKeepTheirNames(t *testing.T) {
	s := newScheduled(t, 2)
	s.round(1)
	s.remove(1)
	if got := names(s.ring.Services()); !slices.Equal(got, []string{"a"}) {
		t.Errorf("services %v", got)
	}
	m := services(2)[1]
	m.Name = "c"
	s.add(m) // with the ID of b
	s.round(1)
	p := s.ring.Read(0, PageRounds, nil)
	if got := names(p.Services); !slices.Equal(got, []string{"a", "b gone", "c"}) {
		t.Fatalf("services of the page: %v", got)
	}
	for i, want := range []string{"b", "c"} {
		r := &p.Rounds[i]
		if got := p.Services[r.Spans[0].Service].Name; got != want || p.Services[r.Candidates[0].Service].Name != want {
			t.Errorf("round %d ran %q, want %q", r.Number, got, want)
		}
	}
	// Once no round of b is left, its position is free.
	for range Rounds {
		s.round(0)
	}
	m.ID, m.Name = 2, "d"
	s.add(m)
	if got := names(s.ring.Read(0, 0, nil).Services); !slices.Equal(got, []string{"a", "d", "c"}) {
		t.Errorf("services %v", got)
	}
}

// A successor goes on under the name of its predecessor.
func TestSuccessorGoesOn(t *testing.T) {
	s := newScheduled(t, 1)
	s.round(0)
	m := services(1)[0]
	m.ID, m.QoSTarget = 1, 50*time.Millisecond
	s.add(m)
	s.arrive(0, time.Second)
	r := s.begin()
	s.ring.dropService(0)                         // as soon as new queries go to the other
	s.ring.answered(0, 3*time.Millisecond, false) // what it had
	s.end(r)
	s.round(1)
	list := s.ring.Services()
	if len(list) != 1 || list[0].Name != "a" || list[0].Target != m.QoSTarget || list[0].Ended != 3 || list[0].Missed != 1 {
		t.Errorf("services %+v", list)
	}
	for _, r := range s.ring.Read(0, PageRounds, nil).Rounds {
		if r.Spans[0].Service != 0 {
			t.Errorf("round %d is of service %d", r.Number, r.Spans[0].Service)
		}
	}
	s.ring.setService(m, true)
	if list := s.ring.Services(); list[0].Ended != 0 {
		t.Errorf("after a fresh start: %+v", list)
	}
}

// Whatever comes and goes, every position on a page has a name, and services
// are told of once each.
func TestLaneProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newScheduled(t, 1)
		there := []string{"a"}
		for range rapid.IntRange(0, 20).Draw(rt, "steps") {
			id := rapid.IntRange(0, len(there)-1).Draw(rt, "service")
			switch rapid.IntRange(0, 2).Draw(rt, "what") {
			case 0:
				if there[id] != "" {
					s.round(id)
				}
			case 1:
				if there[id] != "" {
					s.remove(models.ServiceID(id))
					there[id] = ""
				}
			default:
				m := services(1)[0]
				if m.ID = models.ServiceID(id); there[id] != "" {
					m.ID = models.ServiceID(len(there))
					there = append(there, "")
				}
				m.Name = string(rune('a' + rapid.IntRange(0, 3).Draw(rt, "name")))
				s.add(m)
				there[m.ID] = m.Name
			}
		}
		p := s.ring.Read(0, PageRounds, nil)
		for i := range p.Rounds {
			for at := range p.Rounds[i].services {
				if *at >= len(p.Services) || p.Services[*at].Name == "" {
					rt.Fatalf("position %d of %v", *at, names(p.Services))
				}
			}
		}
		want := slices.DeleteFunc(slices.Clone(there), func(name string) bool { return name == "" })
		slices.Sort(want)
		got := names(s.ring.Services())
		slices.Sort(got)
		if want = slices.Compact(want); !slices.Equal(got, want) {
			rt.Fatalf("services %v, want %v", got, want)
		}
	})
}

// A page that is read while services come and go can be told whole.
func TestReadWhileServicesChange(t *testing.T) {
	s := newScheduled(t, 1)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		var page *Page
		for {
			select {
			case <-stop:
				return
			default:
			}
			page = s.ring.Read(Latest, PageRounds, page)
			if n := page.positions(); n > len(page.Services) {
				t.Errorf("%d positions, %d services", n, len(page.Services))
				return
			}
			s.ring.Services()
		}
	})
	m := services(1)[0]
	for i := range 1000 {
		m.ID, m.Name = 1, string(rune('b'+i%20))
		s.add(m)
		s.round(1)
		s.remove(1)
	}
	close(stop)
	readers.Wait()
}
