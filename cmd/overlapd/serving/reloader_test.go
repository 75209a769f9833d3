package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/cli"
)

// fakeRunning is a daemon that does what a test says.
type fakeRunning struct {
	config config.Config
	done   *config.Reloaded
	err    error
	leaves bool
}

func (f *fakeRunning) Reload(_ context.Context, c config.Config, progress func(config.Step)) (*config.Reloaded, error) {
	f.config = c
	progress(config.Step{Service: "a", State: config.StepDone})
	return f.done, f.err
}

func (f *fakeRunning) Restart(service string) error {
	switch service {
	case "lost":
		return nil
	case "well":
		return fmt.Errorf("well: %w", daemon.ErrNotGivenUp)
	}
	return fmt.Errorf("%s: %w", service, daemon.ErrNoService)
}

func (f *fakeRunning) Leave(leaves bool) { f.leaves = leaves }

func (f *fakeRunning) Open() (map[string]int64, uint64) { return map[string]int64{"a": 2}, 7 }

func (f *fakeRunning) Config() config.Config { return f.config }

// listening is a reloader that notes what it tells.
type listening struct {
	*reloader
	told []string
	log  bytes.Buffer
}

func newListening(read func() (config.Config, error)) *listening {
	l := &listening{}
	l.reloader = &reloader{read: read, log: zerolog.New(&l.log), tell: func(s string) error {
		l.told = append(l.told, s)
		return nil
	}}
	return l
}

// lines returns the messages of the log, with what each is about.
func (l *listening) lines(t *testing.T) (lines []string) {
	t.Helper()
	for text := range strings.Lines(l.log.String()) {
		var line struct{ Level, Message, Service, Key, Error string }
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Join(slices.DeleteFunc([]string{line.Level, line.Service, line.Key, line.Message, line.Error}, func(s string) bool { return s == "" }), " "))
	}
	return lines
}

func TestReloaderLogsEachChange(t *testing.T) {
	c := config.Embedded()
	l := newListening(func() (config.Config, error) { return c, nil })
	f := &fakeRunning{done: &config.Reloaded{
		Added: []string{"n"}, Removed: []string{"o"}, Replaced: []string{"r", "s"}, Moved: []string{"m"}, Changed: []string{"t"},
		Settings: []string{"log_level"}, Restart: []string{"policy"},
		Failed: map[string]string{"s": "no such file"}, Took: time.Second,
	}}
	l.follow(f)
	if _, err := l.Reload(t.Context(), func(config.Step) {}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"info reloading the configuration",
		"info n the service is added", "info r the service is replaced",
		"error s the service could not be replaced; the old one keeps serving no such file",
		"info m the service is moved", "info t the service is changed", "info o the service is removed",
		"info log_level the setting is changed",
		"warn policy setting differs in the file; it takes effect after a restart",
		"error configuration reloaded",
	}
	if got := l.lines(t); !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	if len(l.told) != 0 {
		t.Errorf("a manager that waits for the start was told %q", l.told)
	}
}

func TestReloaderTellsTheManager(t *testing.T) {
	l := newListening(func() (config.Config, error) { return config.Config{}, errors.New("unreadable") })
	l.follow(&fakeRunning{})
	l.announced.Store(true)
	if _, err := l.Reload(t.Context(), nil); err == nil {
		t.Fatal("an unreadable file was read")
	}
	if len(l.told) != 2 || !strings.HasPrefix(l.told[0], "RELOADING=1\nMONOTONIC_USEC=") || l.told[1] != "READY=1" {
		t.Errorf("told %q", l.told)
	}
}

// A file that is wrong is one clear error, and the daemon is not asked.
func TestReloaderOfAWrongFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "o.toml")
	if err := os.WriteFile(path, []byte("ready = 0\npolicy = \"luck\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Path: path}
	l := newListening(o.Config)
	f := &fakeRunning{err: errors.New("asked")}
	l.follow(f)
	_, err := l.Reload(t.Context(), nil)
	if _, faulty := errors.AsType[config.Faults](err); !faulty || len(f.config.Services) > 0 {
		t.Errorf("got %v, and the daemon has %v", err, f.config.Services)
	}
	lines := l.lines(t)
	if len(lines) != 2 || !strings.Contains(lines[1], "error configuration invalid; nothing was changed") ||
		!strings.Contains(lines[1], "o.toml:1: ready: ") || !strings.Contains(lines[1], "; "+path+":2: policy") {
		t.Errorf("the log: %q", lines)
	}
}

// What flags said at the start, they say again.
func TestReloaderKeepsFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "o.toml")
	file := []byte("listen = \"127.0.0.1:1\"\ndevice = \"cpu\"\n[[service]]\nname = \"a\"\nmodel = \"m.onnx\"\n")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Path: path, listen: "127.0.0.1:2", policy: "edf"}
	l := newListening(o.Config)
	f := &fakeRunning{done: new(config.Reloaded)}
	l.follow(f)
	if _, err := l.Reload(t.Context(), func(config.Step) {}); err != nil {
		t.Fatal(err)
	}
	if c := f.config; c.Listen != "127.0.0.1:2" || c.Policy != "edf" || c.Services[0].Model != filepath.Join(filepath.Dir(path), "m.onnx") {
		t.Errorf("the daemon got %+v", c)
	}
}

func TestReloaderBeforeTheDaemon(t *testing.T) {
	l := newListening(nil)
	_, reload := l.Reload(t.Context(), nil)
	_, config := l.Config()
	for what, err := range map[string]error{"reload": reload, "config": config, "restart": l.Restart("a")} {
		if !errors.Is(err, errOpening) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

func TestReloaderRestarts(t *testing.T) {
	l := newListening(nil)
	l.follow(&fakeRunning{})
	for service, kind := range map[string]string{"lost": "", "well": admin.KindState, "none": admin.KindNotFound} {
		err := l.Restart(service)
		if e, ok := errors.AsType[*admin.Error](err); ok != (kind != "") || ok && e.Kind != kind {
			t.Errorf("restart %s: got %v", service, err)
		}
	}
}

// The flags of Triton's model control modes belong to a repository, and to each other.
func TestModelControlFlags(t *testing.T) {
	for args, fault := range map[string]string{
		"":                              "",
		"--model-repository d":          "",
		"--model-control-mode explicit": "--model-control-mode needs --model-repository",
		"--load-model a":                "--load-model needs --model-repository",
		"--model-repository d --model-control-mode none":                               "",
		"--model-repository d --model-control-mode all":                                `not "all"`,
		"--model-repository d --load-model a":                                          "--load-model needs --model-control-mode explicit",
		"--model-repository d --model-control-mode explicit --load-model *":            "",
		"--model-repository d --model-control-mode explicit --repository-poll-secs 1":  "needs --model-control-mode poll",
		"--model-repository d --model-control-mode poll --repository-poll-secs 0":      "must be in [1, 86400], not 0",
		"--model-repository d --model-control-mode poll --repository-poll-secs 100000": "must be in [1, 86400], not 100000",
		"--model-repository d --model-control-mode poll --repository-poll-secs 86400":  "",
	} {
		var o Options
		cmd := &cobra.Command{}
		o.repositoryFlags(cmd)
		if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if err := o.checkControl(cmd); fault == "" && err != nil || fault != "" && (err == nil || !strings.Contains(err.Error(), fault)) {
			t.Errorf("flags %s: got %v, want %q", args, err, fault)
		}
	}
}

// A load request reads one model of the repository again and leaves the others as they were.
func TestReread(t *testing.T) {
	dir := t.TempDir()
	add := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	file, err := cli.ModelPath("tiny_mlp")
	if err != nil {
		t.Fatal(err)
	}
	model, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"a/1", "a/2", "b/1"} {
		add(path+"/model.onnx", string(model))
	}
	o := Options{repository: dir, target: time.Second, control: controlExplicit, keep: []string{"b"}, policy: "edf"}
	c, err := o.Config()
	if err != nil || strings.Join(c.Names(), " ") != "a b" || c.Models.Load != config.LoadByRequest || c.Services[0].Keep || !c.Services[1].Keep {
		t.Fatalf("at the start there are %+v, %v", c.Services, err)
	}
	add("b/config.pbtxt", "max_batch_size: 3")
	add("a/config.pbtxt", "version_policy { all { } }")
	add("c/7/model.onnx", string(model))
	if c, err = o.reread("a"); err != nil || strings.Join(c.Names(), " ") != "a a:1 b" {
		t.Errorf("with all versions of a: %v, %v", c.Names(), err)
	}
	if c, err = o.reread("c"); err != nil || strings.Join(c.Names(), " ") != "a a:1 b c" || c.Policy != "edf" || c.Service("b").MaxQueryBatch == 3 {
		t.Errorf("with c: %v, %v", c.Names(), err)
	}
	add("a/2/model.onnx", "no model")
	for name, fault := range map[string]string{"a": "not an ONNX model", "d": "no such model"} {
		if _, err := o.reread(name); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("loading %s: got %v, want %q", name, err, fault)
		}
	}
	if c, err = o.Config(); err != nil || strings.Join(c.Names(), " ") != "a a:1 b c" || c.Service("b").MaxQueryBatch != 3 {
		t.Errorf("after a reload: %v, %v", c.Names(), err)
	}
	o = Options{repository: dir, target: time.Second, control: controlExplicit, keep: []string{"d"}}
	if _, err := o.Config(); err == nil || !strings.Contains(err.Error(), "--load-model d: there is no such model") {
		t.Errorf("an unknown model to load: got %v", err)
	}
}
