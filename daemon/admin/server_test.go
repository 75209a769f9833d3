package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/daemon/config"
)

// me is this process, as the kernel says.
func me() peer { return peer{PID: os.Getpid(), UID: uint32(os.Geteuid())} }

// stranger is nobody that may ask.
func stranger() peer { return peer{PID: 7, UID: uint32(os.Geteuid()) + 1} }

func TestReload(t *testing.T) {
	want := &config.Reloaded{
		Added: []string{"a"}, Replaced: []string{"b"}, Restart: []string{"limits.connections"},
		Failed: map[string]string{"b": "no such file"}, Took: time.Second,
	}
	f := newFakeDaemon(func(_ context.Context, progress func(config.Step)) (*config.Reloaded, error) {
		progress(config.Step{Service: "a", State: config.StepDone})
		progress(config.Step{Service: "b", State: config.StepFailed, Done: 1, Total: 2})
		return want, nil
	})
	c := f.serve(t, nil)
	if r, err := c.Last(t.Context()); err != nil || r.State != ReportNone {
		t.Errorf("before any: %+v, %v", r, err)
	}
	var steps []config.Step
	got, err := c.Reload(t.Context(), func(s config.Step) { steps = append(steps, s) })
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	told := []config.Step{{Service: "a", State: "done"}, {Service: "b", State: "failed", Done: 1, Total: 2}}
	if d := cmp.Diff(told, steps); d != "" {
		t.Error(d)
	}
	last, err := c.Last(t.Context())
	if err != nil || last.State != reportDone || last.Began.IsZero() {
		t.Errorf("afterwards: %+v, %v", last, err)
	}
	if d := cmp.Diff(want, last.Reloaded); d != "" {
		t.Error(d)
	}
}

// Progress is told while the reload runs, and who leaves does not end it.
func TestReloadIsStreamed(t *testing.T) {
	begun, open := make(chan struct{}), make(chan struct{})
	f := newFakeDaemon(func(_ context.Context, progress func(config.Step)) (*config.Reloaded, error) {
		progress(config.Step{Service: "a", State: config.StepLoading})
		close(begun)
		<-open
		progress(config.Step{Service: "a", State: config.StepDone})
		return &config.Reloaded{}, nil
	})
	c := f.serve(t, nil)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := c.Reload(ctx, func(config.Step) { leave() })
		left <- err
	}()
	await(t, begun, "the reload")
	if err := await(t, left, "progress, and who leaves"); err == nil {
		t.Error("the reload was over before it was over")
	}
	if r, err := c.Last(t.Context()); err != nil || r.State != reportRunning || len(r.Steps) != 1 {
		t.Errorf("while it runs: %+v, %v", r, err)
	}
	if _, err := c.Reload(t.Context(), nil); told(err).Kind != KindBusy {
		t.Errorf("a second one: %v", err)
	}
	close(open)
	await(t, f.Last().Done(), "the end")
	if r, err := c.Last(t.Context()); err != nil || r.State != reportDone || r.Steps[0].State != config.StepDone {
		t.Errorf("afterwards: %+v, %v", r, err)
	}
}

func TestReloadOfAWrongFile(t *testing.T) {
	f := newFakeDaemon(func(context.Context, func(config.Step)) (*config.Reloaded, error) {
		return nil, config.Faults{{File: "/etc/o.toml", Line: 3, Key: "ready", Message: "must be less"}, {Key: "policy", Message: "must be one"}}
	})
	c := f.serve(t, nil)
	_, err := c.Reload(t.Context(), nil)
	if e := told(err); e.Kind != KindConfig || e.Message != "/etc/o.toml:3: ready: must be less\npolicy: must be one" {
		t.Errorf("got %+v", e)
	}
	if r, err := c.Last(t.Context()); err != nil || r.State != reportFailed || r.Error.Kind != KindConfig {
		t.Errorf("afterwards: %+v, %v", r, err)
	}
	if status, _ := raw(t, c, "POST /reload HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusUnprocessableEntity {
		t.Errorf("HTTP status %d", status)
	}
}

func TestRestart(t *testing.T) {
	f := newFakeDaemon(nothing)
	c := f.serve(t, nil)
	if err := c.Restart(t.Context(), "lost"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"other", "a/b?c", "..", "é"} {
		if err := c.Restart(t.Context(), name); err == nil || told(err).Kind != KindNotFound {
			t.Errorf("%q: %v", name, err)
		}
	}
	if len(f.restarted) < 3 || f.restarted[0] != "lost" || f.restarted[2] != "a/b?c" {
		t.Errorf("restarted %q", f.restarted)
	}
}

func TestConfig(t *testing.T) {
	f := newFakeDaemon(nothing)
	c := f.serve(t, nil)
	if file, err := c.get(t.Context(), "/config"); err != nil || string(file) != fakeFile {
		t.Errorf("got %q, %v", file, err)
	}
	f.hides = &Error{KindBusy, "it is opened"}
	if file, err := c.get(t.Context(), "/config"); told(err).Kind != KindBusy {
		t.Errorf("got %q, %v", file, err)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	f := newFakeDaemon(nothing)
	c := f.serve(t, from(stranger()))
	_, err := c.Reload(t.Context(), nil)
	if e := told(err); e.Kind != kindForbidden || !strings.Contains(e.Message, "only root and the daemon's user") {
		t.Errorf("reload: %+v", e)
	}
	if p := await(t, f.refused, "the host to be told"); p.UID != stranger().UID {
		t.Errorf("refused %v", p)
	}
	for what, ask := range map[string]func() error{
		"last":    func() error { _, err := c.Last(t.Context()); return err },
		"config":  func() error { _, err := c.get(t.Context(), "/config"); return err },
		"restart": func() error { return c.Restart(t.Context(), "lost") },
		"unknown": func() error { _, err := c.do(t.Context(), http.MethodGet, "/nothing"); return err },
	} {
		if err := ask(); told(err).Kind != kindForbidden {
			t.Errorf("%s: %v", what, err)
		}
	}
	if f.Last() != nil || len(f.restarted) > 0 {
		t.Error("something was done for a stranger")
	}
}

// Who may not ask cannot keep out who may.
func TestStrangersTakeNoPlaces(t *testing.T) {
	f := newFakeDaemon(nothing)
	strange := make(chan bool, 100)
	c := f.serve(t, func(*net.UnixConn) (peer, error) {
		if <-strange {
			return stranger(), nil
		}
		return me(), nil
	})
	for range 3 * maxConnections {
		strange <- true
		if err := connect(t, c.path); err != nil {
			t.Fatal(err)
		}
	}
	strange <- false
	if _, err := c.Reload(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// Connections are bounded, and those that bring half a request keep out nobody who brings
// a whole one.
func TestSilentConnectionsLoseTheirPlaces(t *testing.T) {
	c := newFakeDaemon(nothing).serve(t, from(me()))
	var all []net.Conn
	for range 2 * maxConnections {
		to, err := net.Dial("unix", c.path)
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		all = append(all, to)
		_, _ = io.WriteString(to, "GET /reload HTTP/1.1\r\nHost:") // it fails for one that is closed
	}
	for _, to := range all[:maxConnections] {
		_ = to.SetReadDeadline(time.Now().Add(patience))
		if _, err := to.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("there are more connections than %d: %v", maxConnections, err)
		}
	}
	for range 3 {
		if status, _ := raw(t, c, "GET /config HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
}

// raw sends bytes and returns the status of the answer and its body.
func raw(t *testing.T, c *Client, request string) (int, string) {
	t.Helper()
	to, err := net.Dial("unix", c.path)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if err := to.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	go io.WriteString(to, request)
	r, err := http.ReadResponse(bufio.NewReader(to), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(body)
}

func TestWhatIsNotThere(t *testing.T) {
	c := newFakeDaemon(nothing).serve(t, from(me()))
	for request, want := range map[string]int{
		"GET /": 404, "DELETE /reload": 404, "GET /services/a/restart": 404, "POST /config": 404,
		"GET /" + strings.Repeat("x", maxHeaderBytes): 431, "GET /" + strings.Repeat("x", maxHeaderBytes-100): 404,
	} {
		status, body := raw(t, c, request+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if status != want {
			t.Errorf("%.40s: status %d", request, status)
		}
		var got line
		if err := json.Unmarshal([]byte(body), &got); want == 404 && (err != nil || !strings.Contains(got.Error.Message, "POST and GET /reload")) {
			t.Errorf("%.40s: %s", request, body)
		}
	}
	if status, _ := raw(t, c, "nonsense\r\n\r\n"); status != http.StatusBadRequest {
		t.Errorf("nonsense: status %d", status)
	}
}

// The folder of the socket is made if there is none, for its owner alone.
func TestFolderOfTheSocket(t *testing.T) {
	dir := filepath.Join(filepath.Dir(socketPath(t)), "folder")
	s, err := Listen(filepath.Join(dir, strings.Repeat("x", config.MaxSocketPath-len(dir)-1)), "", nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.listener.Close()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != folderMode {
		t.Errorf("it has mode %v, %v", info.Mode(), err)
	}
}

func TestListenRefuses(t *testing.T) {
	for name, at := range map[string]struct{ path, group string }{
		"group": {socketPath(t), "no-such-group"},
		"path":  {"/" + strings.Repeat("x", 200), ""},
	} {
		if _, err := Listen(at.path, at.group, nil, nil, nil); err == nil {
			t.Errorf("%s: made a socket", name)
		} else if !strings.Contains(err.Error(), "admin_") {
			t.Errorf("%s: no remedy: %v", name, err)
		}
	}
}
