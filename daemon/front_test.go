package daemon

import (
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
)

// On a divided GPU the endpoints gather what the units serve a moment after a
// unit has put one service in the place of another. Whoever finds the old one
// meanwhile is not kept busy until then.
func TestReplacedBeforeItIsGathered(t *testing.T) {
	b, service := &backend{registry: new(registry)}, fakeConfig(1, nil).Services[0]
	old, now := NewService(0, service, "edf"), NewService(1, service, "edf")
	old.home, now.home = b, b
	f := &front{backends: []*backend{b}}
	b.publish([]*Service{old})
	f.gather([]config.Service{service})
	b.publish([]*Service{now})
	old.retired.Store(true)
	if got := f.Service([]byte("s0")); got != now {
		t.Errorf("%+v is found, which takes no requests", got)
	}
	b.publish(nil)
	now.retired.Store(true)
	if got := f.Service([]byte("s0")); got != nil {
		t.Errorf("%+v is found, and was removed", got)
	}
}
