package daemon

import (
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
)

// On a divided GPU the endpoints gather what the units serve a moment after a
// unit has put one service in the place of another. Whoever finds the old one
// meanwhile is not kept busy until then.
func TestReplacedBeforeItIsGathered(t *testing.T) {
	b, service := &backend{Registry: new(query.Registry)}, fakeConfig(1, nil).Services[0]
	old, now := newService(0, &service, "edf", b), newService(1, &service, "edf", b)
	f := &front{backends: []*backend{b}}
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
