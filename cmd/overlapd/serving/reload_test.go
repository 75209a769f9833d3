package serving

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
)

// administered opens the admin socket of a fake daemon and returns its path.
func administered(t *testing.T, f *fakeRunning, read func() (config.Config, error)) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := config.Embedded()
	c.Admin.Socket = filepath.Join(dir, "a.sock")
	r := newListening(read)
	r.follow(f)
	reloads := admin.NewReloads(t.Context(), r)
	release, err := administer(&c, nil, reloads, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return c.Admin.Socket
}

// say runs a command and returns what it prints.
func say(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var text bytes.Buffer
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetOut(&text)
	err = cmd.ExecuteContext(t.Context())
	return text.String(), err
}

// kindOfFault returns what a daemon says that an error is.
func kindOfFault(err error) string {
	if e, ok := errors.AsType[*admin.Error](err); ok {
		return e.Kind
	}
	return ""
}

func TestReloadCommand(t *testing.T) {
	f := &fakeRunning{done: &config.Reloaded{
		Added: []string{"n"}, Replaced: []string{"resnet"}, Restart: []string{"limits.connections"},
		Took: 1500 * time.Millisecond,
	}}
	path := administered(t, f, func() (config.Config, error) { return config.Embedded(), nil })
	if out, err := say(t, "reload", "--last", "--admin", path); err != nil || !strings.Contains(out, "no reload since the daemon started") {
		t.Errorf("before any: %v, %s", err, out)
	}
	out, err := say(t, "reload", "--admin", path)
	want := "a: done\nadded     n\nreplaced  resnet\nlater     limits.connections  takes effect after a restart\ntook 1.5s\n"
	if d := cmp.Diff(want, out); d != "" || err != nil {
		t.Errorf("reload: %v, %s", err, d)
	}
	if out, _ := say(t, "reload", "--last", "--admin", path); !strings.HasPrefix(out, "done, started at ") || !strings.HasSuffix(out, want) {
		t.Errorf("afterwards: %s", out)
	}
	var got config.Reloaded
	out, _ = say(t, "reload", "--json", "--admin", path)
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Errorf("reading what --json printed: %v: %s", err, out)
	}
	if d := cmp.Diff(*f.done, got); d != "" {
		t.Error(d)
	}
}

func TestReloadCommandThatFails(t *testing.T) {
	f := &fakeRunning{done: &config.Reloaded{
		Added: []string{"n"}, Replaced: []string{"r", "d"},
		Failed: map[string]string{"r": "no such file", "n": "no room", "d": "cut off"}, Down: []string{"d"},
	}}
	path := administered(t, f, func() (config.Config, error) { return config.Embedded(), nil })
	out, err := say(t, "reload", "--admin", path)
	if err == nil || !strings.Contains(err.Error(), "d, n, r could not be loaded") ||
		!strings.Contains(out, "FAILED  r  not replaced: no such file; the old one keeps serving") ||
		!strings.Contains(out, "FAILED  d  not replaced: cut off; nothing serves it, because the previous one failed permanently") || !strings.Contains(out, "not added: no room") {
		t.Errorf("got %v and printed %s", err, out)
	}
	wrong := administered(t, f, func() (config.Config, error) {
		return config.Config{}, config.Faults{{Key: "ready", Message: "must be less"}}
	})
	if out, err := say(t, "reload", "--admin", wrong); kindOfFault(err) != admin.KindConfig || err.Error() != "ready: must be less" || out != "" {
		t.Errorf("a wrong file: %v, printed %s", err, out)
	}
	if out, _ := say(t, "reload", "--last", "--json", "--admin", wrong); !strings.Contains(out, `"kind": "config"`) {
		t.Errorf("afterwards: %s", out)
	}
	if _, err := say(t, "reload", "--admin", path+"x"); err == nil || !strings.Contains(err.Error(), "no daemon is running") {
		t.Errorf("nobody there: %v", err)
	}
}

func TestReloadThatChangesNothing(t *testing.T) {
	path := administered(t, &fakeRunning{done: new(config.Reloaded)}, func() (config.Config, error) { return config.Embedded(), nil })
	if out, err := say(t, "reload", "--admin", path); err != nil || !strings.Contains(out, "nothing changed") {
		t.Errorf("got %v and printed %s", err, out)
	}
}

func TestRestartCommand(t *testing.T) {
	path := administered(t, &fakeRunning{}, nil)
	for service, want := range map[string]string{"lost": "is restarting", "well": "only a service that failed permanently", "none": "no such service"} {
		out, err := say(t, "restart", service, "--admin", path)
		if err != nil {
			out = err.Error()
		}
		if (err == nil) != (service == "lost") || !strings.Contains(out, want) {
			t.Errorf("%s: got %s", service, out)
		}
	}
	if _, err := say(t, "restart"); err == nil {
		t.Error("no service is needed")
	}
}

// A socket that was chosen must be there; one that nobody asked for need not.
func TestAdministerWithoutASocket(t *testing.T) {
	c := config.Embedded()
	c.StateDir = "/dev/null/nowhere"
	t.Setenv("RUNTIME_DIRECTORY", "")
	t.Setenv("XDG_RUNTIME_DIR", "")
	var log bytes.Buffer
	release, err := administer(&c, nil, nil, zerolog.New(&log))
	if err != nil || !strings.Contains(log.String(), "no admin socket; reload with SIGHUP") {
		t.Errorf("auto: %v, %s", err, &log)
	}
	release()
	c.Admin.Socket = "/dev/null/nowhere/a.sock"
	if _, err := administer(&c, nil, nil, zerolog.Nop()); err == nil {
		t.Error("one that was chosen is missing")
	}
	c.Admin.Socket = "off"
	if release, err := administer(&c, nil, nil, zerolog.Nop()); err != nil {
		t.Error(err)
	} else {
		release()
	}
}
