package test

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// says fails unless a text has all of the parts, none of which may be about
// the inside of the program.
func says(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("it does not say %q:\n%s", part, text)
		}
	}
	if strings.Contains(text, "goroutine") {
		t.Errorf("it crashed:\n%s", text)
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	text := refused(t, config{top: `listen = "` + taken.Addr().String() + `"`, services: []service{tinyAdd}})
	says(t, text, taken.Addr().String(), "address already in use")
	n := 0
	for line := range strings.Lines(text) {
		if !strings.Contains(line, `"level":"debug"`) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("it takes %d lines to say it:\n%s", n, text)
	}
}

func TestAllFaultsOfAConfigurationAtOnce(t *testing.T) {
	t.Parallel()
	says(t, refusedWithCode(t, config{
		top:    `policy = "luck"`,
		worker: "span_timeout = \"0s\"\nno_such_key = 1\n",
		services: []service{
			tinyAdd, {name: "add", model: "zoo:tiny_mlp", lines: `target = "0s"`},
			{name: "negative", model: "zoo:tiny_mlp", lines: "target = \"-1s\"\nqueue_limit = 0"},
		},
	}, faulty), "no_such_key", "luck", "span_timeout", "target", "queue_limit", `"add" is also the name of`)
}

func TestUnknownZooModel(t *testing.T) {
	t.Parallel()
	says(t, refusedWithCode(t, config{services: []service{{name: "a", model: "zoo:no_such"}}}, faulty), "no_such", "service[0].model")
}

func TestDamagedStateFile(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{
		"garbage": bytes.Repeat([]byte("garbage"), 5000), "four bytes": []byte("ONNX"), "zeros": make([]byte, 1<<16),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "state.db")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			p := serve(t, config{dir: dir, services: []service{tinyAdd}})
			says(t, p.logged(), "damaged and renamed")
			kept, _ := filepath.Glob(path + ".damaged-*")
			if len(kept) != 1 {
				t.Fatalf("set aside: %v", kept)
			}
			if was, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(was, data) {
				t.Errorf("the damaged file changed: %v", err)
			}
		})
	}
}

func TestSecondDaemonOnOneStateFolder(t *testing.T) {
	t.Parallel()
	p := serve(t, config{services: []service{tinyAdd}})
	says(t, refused(t, config{dir: p.config.dir, services: []service{tinyAdd}}), p.config.dir, "another overlapd uses this state folder", "give each its own state_dir")
	p.alive()
}

func TestStateFolderThatCannotBe(t *testing.T) {
	t.Parallel()
	file := write(t, "file", nil)
	says(t, refused(t, config{dir: filepath.Join(file, "state"), services: []service{tinyAdd}}), "state_dir", "not a directory")
}

// What is measured is stored at the end and taken again at the next start.
func TestProfileIsKept(t *testing.T) {
	t.Parallel()
	c := config{dir: t.TempDir(), services: []service{tinyAdd}}
	p := serve(t, c)
	p.stop()
	again := serve(t, c)
	e := again.await("that the worker ready", func(e event) bool { return e.Message == "worker ready" })
	if !e.Cached {
		t.Error("the optimized model was made again")
	}
	again.await("that the profile is taken", func(e event) bool { return e.Message == "stored profile loaded" })
	if n := p.count(func(e event) bool { return e.Message == "stored profile loaded" }); n != 0 {
		t.Error("a profile came from nowhere")
	}
}
