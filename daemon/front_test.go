package daemon

import (
	"slices"
	"testing"

	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/query"
)

// On a divided GPU the endpoints find a service as soon as it takes the place of
// another, and all in the order of the configuration.
func TestFrontOfInstances(t *testing.T) {
	one, two := newBackend(t, fakeConfig(2, nil), nil, nil), newBackend(t, fakeConfig(2, nil), nil, nil)
	f := &front{backends: []*loop.Backend{one.Backend, two.Backend}, order: func() []string { return []string{"c", "a"} }}
	old, now, other, added := query.NewService(0, "a"), query.NewService(1, "a"), query.NewService(0, "c"), query.NewService(1, "new")
	one.Publish([]*query.Service{old})
	two.Publish([]*query.Service{added, other})
	if got := f.Services(); !slices.Equal(got, []*query.Service{other, old, added}) {
		t.Errorf("%v", got)
	}
	one.Publish([]*query.Service{now})
	if got := f.Service([]byte("a")); got != now {
		t.Errorf("%+v is found, which takes no requests", got)
	}
	one.Publish(nil)
	if got := f.Service([]byte("a")); got != nil {
		t.Errorf("%+v is found, and was removed", got)
	}
}
