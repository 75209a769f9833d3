package daemon

import (
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/query"
)

// On a divided GPU the endpoints gather what the units serve a moment after a
// unit has put one service in the place of another. Whoever finds the old one
// meanwhile is not kept busy until then.
func TestReplacedBeforeItIsGathered(t *testing.T) {
	c := fakeConfig(1, nil)
	b, service := newBackend(t, c, nil, nil), c.Services[0]
	old, now := query.NewService(0, service.Name), query.NewService(1, service.Name)
	old.Backend, now.Backend = b.Backend, b.Backend
	f := &front{backends: []*loop.Backend{b.Backend}}
	b.Publish([]*query.Service{old})
	f.gather([]config.Service{service})
	b.Publish([]*query.Service{now})
	old.Retire()
	if got := f.Service([]byte("s0")); got != now {
		t.Errorf("%+v is found, which takes no requests", got)
	}
	b.Publish(nil)
	now.Retire()
	if got := f.Service([]byte("s0")); got != nil {
		t.Errorf("%+v is found, and was removed", got)
	}
}
