package test

import (
	"net"
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
