package admin

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
)

// patience bounds every wait; only what hangs gets there.
const patience = 30 * time.Second

// reloadFunc is what a reload does.
type reloadFunc func(context.Context, func(config.Step)) (*config.Reloaded, error)

// fakeDaemon is a daemon whose reloads do what a test tells them.
type fakeDaemon struct {
	reload    reloadFunc
	restarted []string
	leaves    bool
	hides     error // its configuration
	refused   chan peer
	life      context.Context
	end       context.CancelFunc
	*Reloads
}

func newFakeDaemon(reload reloadFunc) *fakeDaemon {
	f := &fakeDaemon{reload: reload, refused: make(chan peer, 1)}
	f.life, f.end = context.WithCancel(context.Background())
	f.Reloads = NewReloads(f.life, f)
	return f
}

func (f *fakeDaemon) Reload(ctx context.Context, progress func(config.Step)) (*config.Reloaded, error) {
	return f.reload(ctx, progress)
}

func (f *fakeDaemon) Restart(service string) error {
	f.restarted = append(f.restarted, service)
	if service != "lost" {
		return &Error{KindNotFound, "there is no service " + service}
	}
	return nil
}

func (f *fakeDaemon) Leave(leaves bool) error {
	f.leaves = leaves
	return f.hides
}

func (f *fakeDaemon) Open() (map[string]int64, uint64, error) {
	return map[string]int64{"a": 2}, 7, f.hides
}

func (f *fakeDaemon) Config() ([]byte, error) { return []byte(fakeFile), f.hides }

// fakeFile is the configuration of a fakeDaemon.
const fakeFile = "listen = \"127.0.0.1:0\"\n"

// socketPath returns a path that is short enough.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "a.sock")
}

// serve has the daemon administered, by whom ask says that connects.
func (f *fakeDaemon) serve(t *testing.T, ask func(*net.UnixConn) (peer, error)) *Client {
	t.Helper()
	path := socketPath(t)
	if ask == nil {
		ask = credentials
	}
	s, err := Listen(path, "", nil, f.Reloads, func(pid int, uid uint32) {
		select {
		case f.refused <- peer{PID: pid, UID: uid}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	s.listener.ask = ask
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(sync.OnceFunc(func() {
		f.end()
		f.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("the socket is left: %v", err)
		}
	}))
	return NewClient(path)
}

// from says who connects.
func from(p peer) func(*net.UnixConn) (peer, error) {
	return func(*net.UnixConn) (peer, error) { return p, nil }
}

// nothing is a reload that changes nothing.
func nothing(context.Context, func(config.Step)) (*config.Reloaded, error) {
	return &config.Reloaded{}, nil
}

// gate is a reload that waits: it begins by closing begun, and ends when the
// test or the daemon says so.
type gate struct {
	begun chan struct{}
	open  chan struct{}
}

func newGate() *gate { return &gate{make(chan struct{}, 8), make(chan struct{})} }

func (g *gate) reload(ctx context.Context, _ func(config.Step)) (*config.Reloaded, error) {
	g.begun <- struct{}{}
	select {
	case <-g.open:
		return &config.Reloaded{}, nil
	case <-ctx.Done():
		return nil, ErrStopping
	}
}

func await[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}
